#include "tools/diff/diff_text.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tools/cli/output.h"
#include "tools/diff/diff_verdict.h"
#include "tools/diff/numerics.h"
#include "tools/diff/op_times.h"
#include "tools/dump/ledger_view.h"
#include "tools/dump/recording_view.h"

namespace steptape::tools {
namespace {

using diff::Section;

/// So many edits of a module, and so many findings of a section, are shown where not all are.
constexpr std::size_t kMost = 8;

std::string module_of(const trace::Recording& recording, trace::Index op) {
  return recording.module_path(recording.ops[op].module);
}

/// Ops before, ops now, edits by kind; modules in which nothing differs have no line.
void put_stats(Lines& out, const std::vector<diff::ModuleStat>& stats) {
  std::size_t widest = 0;
  const auto name_of = [](const diff::ModuleStat& stat) { return shown_module(stat.module); };
  for (const diff::ModuleStat& stat : stats) widest = std::max(widest, name_of(stat).size());
  for (const diff::ModuleStat& stat : stats) {
    if (stat.removed + stat.inserted + stat.moved + stat.changed == 0) continue;
    std::string words;
    const auto add = [&words](std::size_t count, std::string_view word, Tone tone) {
      if (count == 0) return;
      words += (words.empty() ? "" : ", ") + toned(tone, fmt::format("{} {}", count, word));
    };
    add(stat.removed, "removed", Tone::kBad);
    add(stat.inserted, "inserted", Tone::kGood);
    add(stat.moved, "moved", Tone::kHeading);
    add(stat.changed, "changed", Tone::kHeading);
    out.line("  {:<{}}  {:>4} → {:<4} ops: {}", name_of(stat), widest, stat.ops_a, stat.ops_b,
             words);
  }
}

class RecordingText {
 public:
  RecordingText(const diff::RecordingDiff& diff, const trace::Recording& a,
                const trace::Recording& b, const DiffPolicy& policy, Detail detail)
      : diff_(diff), a_(a), b_(b), stream_a_(a), stream_b_(b), policy_(policy), detail_(detail) {}

  std::string take() {
    for (const Section section : diff::sections()) {
      const bool has_noise = section == Section::kNumerics && diff_.numerics.noisy() > 0;
      if (!policy_.tells(section) || (diff_.count(section) == 0 && !has_noise)) continue;
      if (section == Section::kNumerics) {
        put_numerics(out_, diff_.numerics, stream_a_, stream_b_, detail_);
      } else if (section == Section::kStructure) {
        put_structure();
      } else {
        out_.line("{}  {}", toned(Tone::kHeading, name_of(section)), diff_.count(section));
      }
      put_findings(diff_.findings.of(section));
    }
    return out_.take();
  }

 private:
  std::size_t most() const { return detail_ == Detail::kAll ? ~std::size_t{0} : kMost; }

  void put_findings(const std::vector<trace::Finding>& findings) {
    if (detail_ == Detail::kCounts) return;
    const std::size_t shown_ones = std::min(most(), findings.size());
    for (std::size_t i = 0; i < shown_ones; ++i) out_.line("  {}", shown(findings[i].text()));
    if (findings.size() > shown_ones) out_.line("  and {} more", findings.size() - shown_ones);
  }

  void put_structure() {
    const auto& edits = diff_.stream.edits;
    out_.line("{}  {} → {} ops{}{}", toned(Tone::kHeading, name_of(Section::kStructure)),
              a_.ops.size(), b_.ops.size(), edits.empty() ? "" : ": ", words_of_edits(edits));
    if (edits.empty()) return;
    if (detail_ == Detail::kCounts) return put_stats(out_, diff_.modules);
    out_.line("  {}", words_of_pairs());
    std::map<std::string, std::vector<const diff::Edit*>> by_module;
    for (const diff::Edit& edit : edits) {
      by_module[edit.a == trace::kNone ? module_of(b_, edit.b) : module_of(a_, edit.a)].push_back(
          &edit);
    }
    for (const diff::ModuleStat& stat : diff_.modules) {
      const auto found = by_module.find(stat.module);
      if (found != by_module.end()) put_module(stat, found->second);
    }
  }

  /// "72 paired: 58 by module call, 14 by sequence"
  std::string words_of_pairs() const {
    const auto& pairs = diff_.stream.alignment.pairs;
    std::string words;
    for (const auto& [by, how] : {std::pair(diff::MatchedBy::kModuleCall, "module call"),
                                  std::pair(diff::MatchedBy::kSequence, "sequence"),
                                  std::pair(diff::MatchedBy::kContent, "content")}) {
      const auto count = std::ranges::count(pairs, by, &diff::OpPair::matched_by);
      if (count == 0) continue;
      words += fmt::format("{}{} by {}", words.empty() ? "" : ", ", count, how);
    }
    return fmt::format("{} paired: {}", pairs.size(), words);
  }

  void put_module(const diff::ModuleStat& stat, const std::vector<const diff::Edit*>& edits) {
    out_.line("  {}  {} → {} ops", toned(Tone::kHeading, shown_module(stat.module)), stat.ops_a,
              stat.ops_b);
    const std::size_t shown_ones = std::min(most(), edits.size());
    for (std::size_t i = 0; i < shown_ones; ++i) put_edit(*edits[i]);
    if (edits.size() > shown_ones) out_.line("    and {} more", edits.size() - shown_ones);
  }

  static std::string words_of(const diff::OpStream& stream, trace::Index op) {
    const diff::StreamOp words = stream.op(op);
    const bool is_backward = words.phase == trace::Phase::kBackward;
    return fmt::format("op {} {}{}", op, shown(words.text), is_backward ? "  backward" : "");
  }

  void put_edit(const diff::Edit& edit) {
    switch (edit.kind) {
      case diff::EditKind::kRemove:
        return out_.line("    {}", toned(Tone::kBad, "- " + words_of(stream_a_, edit.a)));
      case diff::EditKind::kInsert:
        return out_.line("    {}", toned(Tone::kGood, "+ " + words_of(stream_b_, edit.b)));
      case diff::EditKind::kMove:
        return out_.line("    > {}", words_of_pair(edit));
      case diff::EditKind::kChange:
        return put_change(edit);
    }
  }

  /// "op 17 → 19 aten::relu"; most are paired by their module call, the others say how.
  std::string words_of_pair(const diff::Edit& edit) const {
    std::string words = fmt::format("op {}", edit.a);
    if (edit.a != edit.b) words += fmt::format(" → {}", edit.b);
    words += " " + shown(a_.operator_of(a_.ops[edit.a]).full_name());
    if (a_.ops[edit.a].phase == trace::Phase::kBackward) words += " backward";
    if (edit.matched_by == diff::MatchedBy::kModuleCall) return words;
    return words + fmt::format(" (paired by {})", name_of(edit.matched_by));
  }

  void put_change(const diff::Edit& edit) {
    const std::vector<std::string> changes = words_of_changes(edit.changes);
    const bool fits = changes.size() == 1;
    out_.line("    ~ {}{}", words_of_pair(edit), fits ? ": " + changes.front() : "");
    if (fits) return;
    for (const std::string& change : changes) out_.line("        {}", change);
  }

  /// "shape self, result: [32, 64] → [48, 64]": what changes alike in one line.
  static std::vector<std::string> words_of_changes(const std::vector<diff::OpChange>& changes) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const diff::OpChange& first = changes[i];
      const auto is_alike = [&first](const diff::OpChange& other) {
        return std::tie(other.aspect, other.expected, other.found) ==
               std::tie(first.aspect, first.expected, first.found);
      };
      if (std::any_of(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(i), is_alike))
        continue;
      std::string places;
      for (std::size_t k = i; k < changes.size(); ++k) {
        if (!is_alike(changes[k]) || changes[k].place.empty()) continue;
        places += (places.empty() ? " " : ", ") + changes[k].place;
      }
      words.push_back(shown(fmt::format("{}{}: {} → {}", name_of(first.aspect), places,
                                        first.expected, first.found)));
    }
    return words;
  }

  const diff::RecordingDiff& diff_;
  const trace::Recording& a_;
  const trace::Recording& b_;
  diff::OpStream stream_a_, stream_b_;
  const DiffPolicy& policy_;
  Detail detail_;
  Lines out_{"    "};
};

class DiffText {
 public:
  DiffText(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b,
           const DiffPolicy& policy, Detail detail)
      : diff_(diff), a_(a), b_(b), policy_(policy), detail_(detail) {}

  std::string take() {
    for (const Section section : diff::sections()) {
      put_section(diff_.findings, section, "");
      if (section == Section::kLedger) put_ledger();
    }
    for (const diff::StepDiff& step : diff_.steps) put_step(step);
    put_times();
    return std::move(text_);
  }

 private:
  void put_section(const diff::Findings& findings, Section section, const std::string& indent) {
    if (!policy_.tells(section) || findings.of(section).empty()) return;
    text_ += fmt::format("{}{}\n", indent, toned(Tone::kHeading, name_of(section)));
    for (const trace::Finding& finding : findings.of(section)) {
      text_ += fmt::format("{}  {}\n", indent, shown(finding.text()));
    }
  }

  void put_ledger() {
    if (diff_.ledger && policy_.tells(Section::kLedger)) text_ += ledger_diff_text(*diff_.ledger);
    if (diff_.ledger_only_in.empty()) return;
    text_ += fmt::format("{}\n  only the {} run left one: calls are not compared\n",
                         toned(Tone::kHeading, name_of(Section::kLedger)),
                         diff_.ledger_only_in == "a" ? "first" : "second");
  }

  void put_times() {
    if (!policy_.tells(Section::kTime)) return;
    std::string times = diff_.ledger ? time_diff_text(*diff_.ledger) : "";
    for (const diff::StepDiff& step : diff_.steps) times += op_times_text(step, detail_);
    if (!times.empty()) text_ += toned(Tone::kHeading, name_of(Section::kTime)) + "\n" + times;
  }

  void put_step(const diff::StepDiff& step) {
    const trace::Step& x = *a_.find_step(step.name);
    const trace::Step& y = *b_.find_step(step.name);
    std::string head =
        fmt::format("{}step {}\n", text_.empty() ? "" : "\n", toned(Tone::kHeading, shown(x.name)));
    const std::size_t before = text_.size();
    for (const Section section : diff::sections()) put_section(step.findings, section, "  ");
    put_lonely_calls(step.calls_only_in_a, "first");
    put_lonely_calls(step.calls_only_in_b, "second");
    const bool has_variants = std::ranges::any_of(step.recordings, [&](const auto& recording) {
      return !recording.is_beside && policy_.has_told(recording);
    });
    for (const diff::RecordingDiff& recording : step.recordings) {
      if (!policy_.has_told(recording)) continue;
      put_recording(recording, x.recordings[recording.pair.a], y.recordings[recording.pair.b],
                    has_variants);
    }
    if (text_.size() != before) text_.insert(before, head);
  }

  void put_lonely_calls(const std::vector<std::uint64_t>& calls, std::string_view run) {
    if (calls.empty() || !policy_.tells(Section::kStructure)) return;
    const std::size_t shown_ones =
        detail_ == Detail::kAll ? calls.size() : std::min(kMost, calls.size());
    const auto end = calls.begin() + static_cast<std::ptrdiff_t>(shown_ones);
    text_ += fmt::format("  recorded by the {} run alone, and not compared: call {}", run,
                         fmt::join(calls.begin(), end, ", "));
    if (shown_ones < calls.size()) text_ += fmt::format(" and {} more", calls.size() - shown_ones);
    text_ += "\n";
  }

  /// A warm-up mostly differs in what the variants differ in, and is told in one line beside them.
  void put_recording(const diff::RecordingDiff& diff, const trace::Recording& a,
                     const trace::Recording& b, bool has_variants) {
    text_ += fmt::format("  recording {} {} → {} {}, paired by {}", diff.pair.a, name_of(a.status),
                         diff.pair.b, name_of(b.status), name_of(diff.pair.paired_by));
    if (diff.call != 0) text_ += fmt::format(" {}", diff.call);
    const bool has_numerics = policy_.tells(Section::kNumerics) && diff.numerics.count() > 0;
    if (diff.is_beside && has_variants && detail_ != Detail::kAll && !has_numerics) {
      text_ += ", differs too\n";
      return;
    }
    text_ += "\n" + RecordingText(diff, a, b, policy_, detail_).take();
  }

  const diff::Diff& diff_;
  const trace::Trace& a_;
  const trace::Trace& b_;
  const DiffPolicy& policy_;
  Detail detail_;
  std::string text_;
};

}  // namespace

std::string diff_text(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b,
                      const DiffPolicy& policy, Detail detail) {
  return DiffText(diff, a, b, policy, detail).take();
}

}  // namespace steptape::tools
