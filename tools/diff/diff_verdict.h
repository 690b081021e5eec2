#pragma once

#include <set>
#include <string>
#include <vector>

#include "diff/diff.h"
#include "tools/diff/comparison.h"

namespace steptape::tools {

/// Which sections of a diff are told, and which of them make two traces differ for the shell.
class DiffPolicy {
 public:
  /// Both by name; without `fail_on`, all sections but memory, which follows from the ops, lines of
  /// the program and times. Throws Error (invalid_argument) for a name that no section has.
  DiffPolicy(const std::vector<std::string>& ignore, const std::vector<std::string>& fail_on);

  bool tells(diff::Section section) const { return !ignored_.contains(section); }
  bool fails_on(diff::Section section) const { return tells(section) && fails_.contains(section); }
  bool differs(const diff::Diff& diff) const;
  /// Sections that `fail_on` names and that could not be compared, by name.
  std::vector<std::string> unanswered(const diff::Diff& diff) const;
  /// Whether something is told of the two recordings, be it noise.
  bool has_told(const diff::RecordingDiff& recording) const;

 private:
  std::set<diff::Section> ignored_, fails_;
  bool asks_ = false;  ///< `fail_on` names some
};

/// "differ: ledger (train: call 57: results), numerics (train: call 57: origin op 31 aten::addmm in
/// model.fc1), structure (3 inserted, 1 changed)", in the order of the sections; "equal" where
/// nothing that is told differs; "equal but for place (1)" where nothing counts that does.
std::string verdict_of(const Comparison& found, const DiffPolicy& policy);

/// "22 inserted, 3 changed": edits by kind, those that occur.
std::string words_of_edits(const std::vector<diff::Edit>& edits);

}  // namespace steptape::tools
