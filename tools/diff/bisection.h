#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/diff/comparison.h"

namespace steptape::tools {

/// Where two runs part, as far as their ledgers and recordings tell.
struct Bisection {
  enum class Standing : std::uint8_t {
    kEqual,    ///< nothing that was compared differs
    kNamed,    ///< in call `call`, or between calls just before it
    kBracket,  ///< in a call after `last_equal`, at the latest in `call`
    kLonely,   ///< calls that both made are equal, and one side made more
  };

  Standing standing = Standing::kEqual;
  std::string step;
  std::uint64_t call = 0;
  /// How the call differs by the ledgers; none where recordings told it.
  std::optional<diff::CallDifference> ledger;
  /// The recordings of the call, where both sides have one and their ops were compared.
  const diff::RecordingDiff* recording = nullptr;
  /// The last call up to `call` that both recorded; 0: none.
  std::uint64_t nearest_recorded = 0;
  /// Of a bracket: the last call whose recordings are equal; 0: none.
  std::uint64_t last_equal = 0;
  /// Which call to record next, with digests; 0: none.
  std::uint64_t record_next = 0;
};

/// Refers to `found`, which must outlive it. Throws Error (failed_precondition) where there is
/// nothing to compare: neither ledgers of both nor calls that both recorded with digests.
Bisection bisect(const Comparison& found);

}  // namespace steptape::tools
