#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steptape/guard_kind.h"
#include "trace/model.h"

namespace steptape::trace {

/// One precondition of a plan in words: those of the verdict that tells of its failure.
struct Guard {
  GuardKind kind = GuardKind::kNone;
  std::string object;    ///< what is looked at: "inputs[0]", "model.fc1", "optimizer"
  std::string path;      ///< as Verdict::path: "inputs[0].size(0)"
  std::string expected;  ///< as Verdict::expected: "64"
  /// "any integer": what may stand there too, because formulas follow it; empty where nothing may.
  std::string also_holds;
  /// The same by the other paths that lead to the object.
  std::vector<std::string> aliases;
  friend bool operator==(const Guard&, const Guard&) = default;
};

/// What a plan made from `recording` takes for granted, as far as the recording tells, in the order
/// in which guards are checked. Hooks by number and identity, how many parameters a module has
/// registered, and what the front end of another language guards beside, stand in no recording.
/// `recording` must be valid.
std::vector<Guard> guards_of(const Recording& recording);

}  // namespace steptape::trace
