#include "tools/diff/diff_policy.h"

#include <algorithm>

namespace steptape::tools {

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

}  // namespace steptape::tools
