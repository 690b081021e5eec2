#include "session/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "replayer/planner/analysis/refusals.h"
#include "replayer/planner/numbers/bindings.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "replayer/runtime/backends.h"
#include "session/arguments.h"
#include "session/session_state.h"
#include "trace/compare/guard_differences.h"
#include "trace/refusals.h"
#include "trace/text/text.h"

namespace steptape::session {

using trace::make_refusal;

namespace {

/// Plans in a row of which none was trusted: a number that takes as many values in turn has a plan
/// for each.
constexpr std::uint32_t kMostUntrusted = 16;

}  // namespace

Plans::Plans(SessionState& session, Journal& journal, const std::string& step)
    : session_(session),
      journal_(journal),
      step_(step),
      probing_(session.options.host_reads == HostReads::kObserve ? replayer::Reads::kForLooking
                                                                 : replayer::Reads::kMayDecide),
      variants_(session.options.max_variants) {}

void Plans::bind_numbers(recorder::Recorded& recorded) {
  if (recorded.is_warm_up()) return;
  if (recorded.hints.said.follows_numbers) {
    bind_followed_numbers(recorded);
  } else {
    replayer::bind_optimizers(recorded.recording);
    replayer::refuse_optimizers(recorded.recording, recorded.recording.refusals);
  }
}

bool Plans::learn_from(recorder::Recorded recorded, const std::string& way,
                       const Deferred& deferred) {
  if (recorded.is_warm_up()) {
    if (!warm_up_) {
      warm_up_ = recorded.recording;
      warm_up_->status = trace::Status::kWarmUp;
    }
  } else {
    for (const Refusal& refusal : recorded.recording.refusals) journal_.refused(refusal);
  }
  std::vector<const trace::Recording*> known;
  for (const auto& variant : variants_) known.push_back(variant->recording.get());
  std::vector<const trace::Recording*> earlier;
  if (const EarlierTrace* left = session_.trace.earlier(); may_start_warm_ && left != nullptr) {
    earlier = left->plans_of(step_);
  }
  const std::vector<Refusal> told = recorded.recording.refusals;
  if (auto agreed = probing_.take(way, std::move(recorded), known, earlier)) {
    return make_plan(*std::move(agreed), way, deferred);
  }
  for (const Refusal& refusal : probing_.refusals(way)) {
    const bool is_told = std::ranges::find(told, refusal) != told.end();
    is_told ? journal_.refused_again(refusal) : journal_.refused(refusal);
  }
  return false;
}

/// Where plans are made one after the other because of a number that moves, and that the step uses
/// where it cannot be followed: that number, and the line.
std::optional<Refusal> Plans::plan_for_each_number(const trace::Recording& before,
                                                   const recorder::Recorded& recorded) const {
  const replayer::Numbers then = replayer::numbers_at(before);
  const replayer::Numbers now = replayer::numbers_at(recorded.recording);
  for (const auto& [leaf, place] : recorded.hints.held()) {
    const std::string& path = recorded.hints.leaves()[leaf].path;
    if (recorded.hints.leaves()[leaf].kind == trace::LeafKind::kHostRead) continue;
    const auto was = then.find(path), is = now.find(path);
    if (was == then.end() || is == now.end()) continue;
    if (trace::Real{was->second} == trace::Real{is->second}) continue;
    Refusal refusal =
        make_refusal(RefusalCode::kScalarVaries,
                     fmt::format("`{}` went {} → {}: the step uses it where it cannot be followed, "
                                 "so that each of its values needs a plan, and "
                                 "none of the last {} was used again",
                                 path, trace::words_of({trace::Real{was->second}}),
                                 trace::words_of({trace::Real{is->second}}), untrusted_in_a_row_));
    refusal.place = place;
    return refusal;
  }
  return std::nullopt;
}

void Plans::refuse_collectives(const trace::Recording& recording,
                               std::vector<Refusal>& refusals) const {
  const std::vector<trace::Index> ops = live::collectives_of(recording);
  if (ops.empty()) return;
  const Options& options = session_.options;
  const auto refuse = [&](const std::string& why) {
    refusals.push_back(trace::refusal_at(recording, ops.front(), RefusalCode::kUnreplayableOp,
                                         "collectives are not replayed under " + why));
  };
  if (options.interception != Interception::kFakeKey) {
    refuse("another Interception than kFakeKey: verifications look at no op");
  }
  if (options.on_divergence == OnDivergence::kRestore) {
    refuse("OnDivergence::kRestore, which would put back this process and no other");
  }
}

bool Plans::make_plan(Probing::Agreed agreed, const std::string& way, const Deferred& deferred) {
  recorder::Recorded& recorded = agreed.recorded;
  if (variants_.resumes(recorded.recording, journal_.calls())) return false;
  if (++untrusted_in_a_row_ > kMostUntrusted && variants_.size() > 0) {
    if (auto refusal = plan_for_each_number(*(*std::prev(variants_.end()))->recording, recorded)) {
      untrusted_in_a_row_ = 0;
      refuse(*refusal);
      return false;
    }
  }
  std::vector<Refusal> refusals =
      replayer::refusals_of(recorded.recording, replayer::why_no_backend);
  refuse_collectives(recorded.recording, refusals);
  if (!refusals.empty()) {
    refuse(std::move(refusals), way);
    return false;
  }
  if (!make_room()) {
    refuse(make_refusal(RefusalCode::kTooManyVariants,
                        "there are " + std::to_string(variants_.size()) +
                            " variants; the newest failed at " + journal_.last_verdict().text()));
    return false;
  }
  try {
    auto variant = make_variant(std::move(recorded), session_, variants_made_);
    if (agreed.proved) variant->prove(*agreed.proved);
    variant->last_use = journal_.calls();
    variant->is_warm_start = agreed.with_earlier_run;
    variant->deferred = deferred.without_tensors();
    const std::string path =
        StepOutputs::unreachable_result(*variant->recording, *variant->executor, *variant->guards);
    if (!path.empty()) {
      refuse(
          {make_refusal(RefusalCode::kUnreplayableOp, path + " is a tensor that nobody tracked")},
          way);
      return false;
    }
    ++variants_made_;
    if (EarlierTrace* left = session_.trace.earlier(); left != nullptr) {
      left->compare(step_, *variant->recording);
    }
    journal_.planned(*variant);
    if (variant->trusted) probing_.note_untried();
    variants_.add(std::move(variant));
    return true;
  } catch (const std::exception& error) {
    refuse({make_refusal(RefusalCode::kUnreplayableOp,
                         std::string("no plan could be made: ") + error.what())},
           way);
    return false;
  }
}

/// Variants leave for the one that is to be planned. False where none may.
bool Plans::make_room() {
  std::vector<std::shared_ptr<Variant>> left;
  const bool is_free = variants_.make_room(journal_.calls(), left);
  for (const auto& variant : left) {
    const std::uint64_t unused = journal_.calls() - variant->last_use;
    journal_.dropped(*variant, "used longest ago of all, " + std::to_string(unused) + " calls");
  }
  return is_free;
}

void Plans::drop(const Variant& variant, Refusal refusal, const std::string& way) {
  const bool was_started_warm = variant.is_warm_start && !variant.trusted;
  journal_.dropped(variant, std::string(name_of(refusal.code)));
  variants_.drop(variant);
  if (!was_started_warm) return refuse({std::move(refusal)}, way);
  // the program is another one by now: two probes of it find out more
  may_start_warm_ = false;
  journal_.refused(refusal);
}

void Plans::refuse(std::vector<Refusal> refusals, const std::string& way) {
  for (const Refusal& refusal : refusals) journal_.refused(refusal);
  probing_.pause(way, std::move(refusals));
}

void Plans::refuse(const Refusal& refusal) {
  journal_.refused(refusal);
  probing_.pause_all({refusal});
}

void Plans::refuse_always(Refusal refusal) {
  variants_.clear();
  probing_.stop({std::move(refusal)});
}

void Plans::restart() {
  may_start_warm_ = false;
  variants_.clear();
  probing_.restart();
}

/// Writes down at which numbers the plan was proved, for players, which cannot prove it at others.
void Plans::describe_proofs(const Variant& variant, trace::Recording& recording) const {
  if (!session_.options.verify.first) {
    recording.proofs.clear();  // it takes any
    return;
  }
  variant.number_proofs.describe(
      recording, [&variant](const std::string& path) { return variant.guards->is_pinned(path); });
}

std::vector<trace::Recording> Plans::to_trace(bool with_state) const {
  std::vector<trace::Recording> recordings;
  if (warm_up_) recordings.push_back(*warm_up_);
  for (const auto& variant : variants_) {
    trace::Recording& recording = recordings.emplace_back(*variant->recording);
    const bool is_trusted = recording.status == trace::Status::kTrusted;
    const auto fits = [&] {
      return variant->guards->fits_program() && session_.declarations.fits_places(recording);
    };
    describe_proofs(*variant, recording);
    session_.declarations.describe_places(recording);
    if (!with_state) continue;
    variant->guards->describe_outside(recording);
    if (is_trusted && !fits()) recording.status = trace::Status::kAgreed;
  }
  return recordings;
}

std::vector<std::string> Plans::differences() const {
  constexpr std::size_t kMostInWords = 4;
  std::vector<std::string> differences;
  for (const auto& variant : variants_) {
    const Variant& first = **variants_.begin();
    differences.push_back(
        variant.get() == &first
            ? ""
            : "differs from variant " + std::to_string(first.number) + " in: " +
                  trace::text_of(trace::guard_differences(*first.recording, *variant->recording),
                                 kMostInWords));
  }
  return differences;
}

}  // namespace steptape::session
