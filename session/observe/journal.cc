#include "session/observe/journal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include "session/observe/counter_block.h"
#include "session/session_state.h"
#include "session/variant.h"
#include "session/verify/verification.h"

namespace steptape::session {
namespace {

using Count = CounterBlock::Count;

std::string label_of(const Variant& variant) { return "variant " + std::to_string(variant.number); }

std::string in_whole_us(double us) { return std::to_string(std::llround(us)) + " us"; }

/// "passed", "failed", ...; the last word of the event's name.
struct Outcome {
  std::string name;
  std::string text;
};

Outcome outcome_of(const Verified& verified) {
  if (verified.skipped) return {"skipped", "was skipped: no memory for a copy of what it writes"};
  if (verified.changed) {
    return {"undone", std::string("was undone in mid-run: ") + verified.changed->what()};
  }
  if (verified.is_ungrouped) {
    return {"open", "is open: " + verified.text() +
                        "; the plan did ops together by `_foreach_` ops, and tries without"};
  }
  if (verified.is_open) {
    return {"open", "is open: " + verified.text() +
                        "; the op is run again beside the next step, to see whether it differs "
                        "from itself"};
  }
  if (verified.is_pinned) {
    return {"pinned",
            "was at numbers at which it does something else: it holds for those at which it was "
            "proved"};
  }
  if (verified.is_wrong()) return {"failed", "failed: " + verified.text()};
  return {"passed", "passed in " + in_whole_us(verified.us)};
}

/// Of the variant that was in use last; where none ever was, of the one that was asked last.
const VariantVerdict& that_held_last(const std::vector<VariantVerdict>& verdicts) {
  const VariantVerdict* last = &verdicts.back();
  for (const VariantVerdict& other : verdicts) {
    const bool is_later = last->last_held == 0 || other.last_held < last->last_held;
    if (other.last_held != 0 && is_later) last = &other;
  }
  return *last;
}

}  // namespace

Journal::Journal(SessionState& session, std::string step, std::string place)
    : session_(session), step_(std::move(step)), place_(std::move(place)) {}

std::uint64_t Journal::begin_call() { return call_ = stats_.steps + 1; }

void Journal::end_call(trace::CallOutcome outcome, const Variant* variant) {
  ++stats_.steps;
  if (line_ == nullptr) return;
  line_->call = call_;
  line_->outcome = outcome;
  if (variant != nullptr && variant->number < trace::LedgerLine::kNoVariant) {
    line_->variant = static_cast<std::uint16_t>(variant->number);
  }
}

void Journal::replayed(const Variant& variant) {
  end_call(trace::CallOutcome::kReplayed, &variant);
  ++stats_.replayed;
  session_.counters.add(Count::kReplayed);
}

void Journal::ran_eagerly() {
  end_call(trace::CallOutcome::kEager);
  ++stats_.eager;
  session_.counters.add(Count::kEager);
}

void Journal::recorded(const trace::Recording& recording, bool is_warm_up) {
  end_call(trace::CallOutcome::kRecorded);
  ++stats_.recorded;
  session_.counters.add(Count::kRecorded);
  if (!wants(Category::kRecord)) return;
  write(event(Category::kRecord, is_warm_up ? "warm_up" : "probe",
              std::string("recorded ") + (is_warm_up ? "a warm-up" : "a probe") + " of " +
                  std::to_string(recording.ops.size()) + " ops"));
}

void Journal::tried(const Variant& variant, const Verified& verified) {
  end_call(trace::CallOutcome::kTrial, &variant);
  ++stats_.trials;
  session_.counters.add(Count::kTrials);
  this->verified("trial", variant, verified);
}

void Journal::audited(const Variant& variant, const Verified& verified) {
  if (verified.skipped) {
    end_call(trace::CallOutcome::kEager);
  } else {
    end_call(trace::CallOutcome::kAudit, &variant);
  }
  ++(verified.skipped ? stats_.eager : stats_.audits);
  session_.counters.add(verified.skipped ? Count::kEager : Count::kAudits);
  this->verified("audit", variant, verified);
}

void Journal::verified(const std::string& what, const Variant& variant, const Verified& verified) {
  if (!verified.changed && !verified.is_open && !verified.is_ungrouped && verified.is_wrong())
    session_.counters.add(Count::kDivergences);
  if (!wants(Category::kVerify)) return;
  const Outcome outcome = outcome_of(verified);
  Event made = event(Category::kVerify, what + "_" + outcome.name,
                     "the " + what + " of " + label_of(variant) + " " + outcome.text);
  made.variant = variant.number;
  made.us = verified.us;
  write(std::move(made));
}

void Journal::did_not_fit(const std::vector<VariantVerdict>& verdicts) {
  stats_.last_verdicts = verdicts;
  stats_.last_verdict = verdicts.empty() ? Verdict() : verdicts.back().verdict;
}

void Journal::fell_back(const std::vector<VariantVerdict>& verdicts) {
  did_not_fit(verdicts);
  if (verdicts.empty()) return;
  const VariantVerdict& of = that_held_last(verdicts);
  const CountedVerdict& counted = fallbacks_.count(of.verdict, of.last_held);
  session_.counters.add_fallback(of.verdict.kind);
  if (line_ != nullptr) line_->verdict = of.verdict.kind;
  if (!wants(Category::kGuards)) return;
  Event made = event(Category::kGuards, "fell_back", "fell back: " + text_of(verdicts));
  made.variant = of.variant;
  made.verdict = counted;
  write(std::move(made));
}

void Journal::planned(const Variant& variant) {
  session_.counters.add(Count::kPlans);
  if (!wants(Category::kPlan)) return;
  const PlanStats plan = variant.stats();
  Event made =
      event(Category::kPlan, "planned",
            label_of(variant) + " planned: " + std::to_string(plan.ops) + " ops in " +
                std::to_string(plan.calls) + " calls, in " + in_whole_us(plan.plan_us) +
                (plan.is_warm_start ? ", after one probe: it agreed with an earlier run" : ""));
  made.variant = variant.number;
  made.plan = plan;
  made.us = plan.plan_us;
  write(std::move(made));
}

void Journal::rebound(const Variant& variant, const std::string& path) {
  session_.counters.add(Count::kRebinds);
  if (!wants(Category::kPlan)) return;
  Event made = event(Category::kPlan, "rebound",
                     label_of(variant) + " goes on in the memory that " + path + " has now");
  made.variant = variant.number;
  write(std::move(made));
}

void Journal::dropped(const Variant& variant, const std::string& why) {
  if (!wants(Category::kPlan)) return;
  Event made = event(
      Category::kPlan, "dropped",
      label_of(variant) + " dropped after " + std::to_string(variant.replays) + " replays: " + why);
  made.variant = variant.number;
  write(std::move(made));
}

void Journal::invalidated(const std::string& why) {
  if (!wants(Category::kPlan)) return;
  write(event(Category::kPlan, "invalidated", "invalidated: " + why));
}

void Journal::refused(const Refusal& refusal) {
  refused_again(refusal);
  if (!wants(Category::kRefuse)) return;
  Event made = event(Category::kRefuse, "refused", "refused: " + refusal.text());
  made.code = refusal.code;
  write(std::move(made));
}

void Journal::refused_again(const Refusal& refusal) {
  for (std::size_t i = 0; i < stats_.refusals.size(); ++i) {
    CountedRefusal& counted = stats_.refusals[i];
    const bool is_same = counted.refusal.code == refusal.code && counted.refusal.op == refusal.op &&
                         counted.refusal.place == refusal.place;
    if (!is_same) continue;
    counted.refusal = refusal;
    if (std::exchange(refused_in_[i], call_) == call_) return;  // a call counts once
    session_.counters.add_refusal(refusal.code);
    ++counted.times;
    return;
  }
  session_.counters.add_refusal(refusal.code);
  stats_.refusals.push_back({refusal, 1});
  refused_in_.push_back(call_);
}

void Journal::wrote_trace(const std::string& path, const std::string& problem) {
  if (!wants(Category::kTrace)) return;
  write(problem.empty() ? event(Category::kTrace, "written", "trace written to " + path)
                        : event(Category::kTrace, "not_written", "trace not written: " + problem));
}

Stats Journal::stats() const {
  Stats stats = stats_;
  stats.fell_back = fallbacks_.total();
  stats.fallbacks = fallbacks_.by_frequency();
  return stats;
}

bool Journal::wants(Category category) const { return session_.log.wants(category); }

Event Journal::event(Category category, std::string name, std::string text) const {
  return {.category = category,
          .name = std::move(name),
          .text = std::move(text),
          .session = session_.number,
          .step = step_,
          .place = place_,
          .call = call_};
}

void Journal::write(Event event) const { session_.log.write(event); }

const CountedVerdict& Fallbacks::count(const Verdict& verdict, std::uint64_t last_held) {
  constexpr std::size_t kMost = 64;
  ++total_;
  auto entry = std::ranges::find_if(entries_, [&](const CountedVerdict& other) {
    return other.verdict.kind == verdict.kind && other.verdict.path == verdict.path;
  });
  if (entry == entries_.end()) {
    // of those that are met equally rarely the first found is the one that was met longest ago
    if (entries_.size() == kMost) {
      entries_.erase(std::ranges::min_element(entries_, {}, &CountedVerdict::times));
    }
    entries_.push_back({verdict, 1, last_held});
    return entries_.back();
  }
  entry->verdict = verdict;
  entry->last_held = last_held;
  ++entry->times;
  std::rotate(entry, entry + 1, entries_.end());
  return entries_.back();
}

std::vector<CountedVerdict> Fallbacks::by_frequency() const {
  std::vector<CountedVerdict> sorted(entries_.rbegin(), entries_.rend());
  std::ranges::stable_sort(sorted, std::greater<>(), &CountedVerdict::times);
  return sorted;
}

std::string text_of(const Verdict& verdict, std::uint64_t last_held) {
  const std::string kind =
      verdict.kind == GuardKind::kNone ? "" : std::string(name_of(verdict.kind)) + ": ";
  const std::string held = last_held == 0 ? "never held"
                           : last_held == 1
                               ? "held until 1 call ago"
                               : "held until " + std::to_string(last_held) + " calls ago";
  return kind + verdict.text() + " (" + held + ")";
}

std::string text_of(const std::vector<VariantVerdict>& verdicts) {
  std::string text;
  for (const VariantVerdict& of : verdicts) {
    text += (text.empty() ? "variant " : "; variant ") + std::to_string(of.variant) + ": " +
            text_of(of.verdict, of.last_held);
  }
  return text;
}

}  // namespace steptape::session
