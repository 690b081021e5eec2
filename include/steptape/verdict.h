#pragma once

#include <string>

#include "steptape/guard_kind.h"

namespace steptape {

/// The outcome of checking all guards of a plan: it holds, or the first mismatch in words.
struct Verdict {
  std::string path;  ///< "inputs[0].size(0)", "optimizer.param_groups[0].lr"; empty when it holds
  std::string expected;               ///< "64"
  std::string found;                  ///< "17"
  GuardKind kind = GuardKind::kNone;  ///< what the guard that failed looks at

  explicit operator bool() const noexcept { return path.empty(); }
  /// "inputs[0].size(0): 64 → 17", or "all guards hold".
  std::string text() const;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace steptape
