#include "tools/diff/diff_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/cli/output.h"
#include "tools/diff/numerics.h"

namespace steptape::tools {
namespace {

class EditCount {
 public:
  void add(const std::vector<diff::Edit>& edits) {
    for (const diff::Edit& edit : edits) ++counts_[static_cast<std::size_t>(edit.kind)];
  }
  std::string words() const {
    constexpr std::array kWords = {"removed", "inserted", "moved", "changed"};
    std::string words;
    for (std::size_t kind = 0; kind < counts_.size(); ++kind) {
      if (counts_[kind] == 0) continue;
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", counts_[kind], kWords[kind]);
    }
    return words;
  }
  std::size_t total() const { return counts_[0] + counts_[1] + counts_[2] + counts_[3]; }

 private:
  std::array<std::size_t, 4> counts_{};
};

std::string words_of_structure(const diff::Diff& diff) {
  EditCount edits;
  for (const diff::StepDiff& step : diff.steps) {
    for (const diff::RecordingDiff& recording : step.recordings) {
      if (!recording.is_beside) edits.add(recording.stream.edits);
    }
  }
  const std::size_t others = diff.count(diff::Section::kStructure) - edits.total();
  std::string words = edits.words();
  if (words.empty()) return std::to_string(others);
  return others == 0 ? words : fmt::format("{}, {} beside the ops", words, others);
}

std::string words_of_section(const Comparison& found, diff::Section section, std::size_t count) {
  const diff::Diff& diff = found.diff;
  if (section == diff::Section::kStructure) return words_of_structure(diff);
  if (section == diff::Section::kNumerics) return shown(words_of_numerics(diff, found.a, found.b));
  if (section == diff::Section::kLedger && count == 0) {
    return fmt::format("{} noisy", diff.ledger->noisy());
  }
  if (section == diff::Section::kLedger) return shown(diff.ledger->verdict());
  return std::to_string(count);
}

/// Whether all that differs in the section differs in a control too.
bool has_noise(const diff::Diff& diff, diff::Section section) {
  if (section == diff::Section::kLedger) return diff.ledger && diff.ledger->noisy() > 0;
  return section == diff::Section::kNumerics && noisy_numerics(diff) > 0;
}

bool has_other_warm_up(const diff::Diff& diff, const DiffPolicy& policy) {
  return std::ranges::any_of(diff.steps, [&](const diff::StepDiff& step) {
    return std::ranges::any_of(step.recordings, [&](const diff::RecordingDiff& recording) {
      return recording.is_beside && policy.has_told(recording);
    });
  });
}

}  // namespace

DiffPolicy::DiffPolicy(const std::vector<std::string>& ignore,
                       const std::vector<std::string>& fail_on) {
  for (const std::string& name : ignore) ignored_.insert(diff::section_of(name));
  for (const std::string& name : fail_on) fails_.insert(diff::section_of(name));
  asks_ = !fail_on.empty();
  if (asks_) return;
  for (const diff::Section section : diff::sections()) {
    const bool is_told_only = section == diff::Section::kMemory ||
                              section == diff::Section::kPlace || section == diff::Section::kTime;
    if (!is_told_only) fails_.insert(section);
  }
}

bool DiffPolicy::differs(const diff::Diff& diff) const {
  return std::ranges::any_of(diff::sections(), [&](diff::Section section) {
    return fails_on(section) && diff.count(section) > 0;
  });
}

std::vector<std::string> DiffPolicy::unanswered(const diff::Diff& diff) const {
  std::vector<std::string> names;
  for (const diff::Section section : diff::sections()) {
    if (asks_ && fails_on(section) && !diff.compares(section)) {
      names.emplace_back(name_of(section));
    }
  }
  return names;
}

bool DiffPolicy::has_told(const diff::RecordingDiff& recording) const {
  if (tells(diff::Section::kNumerics) && recording.numerics.noisy() > 0) return true;
  return std::ranges::any_of(diff::sections(), [&](diff::Section section) {
    return tells(section) && recording.count(section) > 0;
  });
}

std::string words_of_edits(const std::vector<diff::Edit>& edits) {
  EditCount count;
  count.add(edits);
  return count.words();
}

std::string verdict_of(const Comparison& found, const DiffPolicy& policy) {
  const diff::Diff& diff = found.diff;
  std::string words;
  for (const diff::Section section : diff::sections()) {
    const std::size_t count = policy.tells(section) ? diff.count(section) : 0;
    if (count == 0 && !(policy.tells(section) && has_noise(diff, section))) continue;
    words += fmt::format("{}{} ({})", words.empty() ? "" : ", ", name_of(section),
                         words_of_section(found, section, count));
  }
  if (policy.differs(diff)) return toned(Tone::kBad, "differ") + ": " + words;
  if (words.empty() && has_other_warm_up(diff, policy)) words = "what a warm-up did";
  return toned(Tone::kGood, "equal") + (words.empty() ? "" : " but for " + words);
}

}  // namespace steptape::tools
