#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diff/numerics/numeric_differences.h"

namespace steptape::diff {

/// What processes that train one model together are to have alike after each call.
struct Shared {
  bool parameters = true;
  bool state = true;     ///< of optimizers
  bool buffers = false;  ///< of modules; running statistics of data that each has for itself differ

  bool has(trace::Role role) const noexcept;
};

/// Where two processes part in what they are to have alike.
struct Parting {
  /// Of what differs, at entry or else when the call ends; in the order of the ops that left
  /// it, the one that the way begins with first.
  std::vector<std::string> paths = {};
  bool is_at_entry = false;  ///< it differed when the call began; there is no way then
  /// From the op that left it with other bits back to where these come from: of each, the input
  /// that differs was left by the next. It ends at a collective, which is to give all the same.
  std::vector<NumericOp> way = {};
  bool ends_at_collective = false;

  /// Where the way ends at bytes that the call found: "inputs[0] at entry". They are other ones on
  /// each process, and no collective made them alike. Empty where it ends at something else.
  std::string entry(const OpStream& a, const OpStream& b) const;
};

/// Of one call, recorded in two processes with digests of its ops, of which `a` is one; `found` is
/// how they differ. None where what is shared is alike as far as the digests tell.
std::optional<Parting> find_parting(const trace::Recording& a, const NumericDifferences& found,
                                    const Shared& shared);

}  // namespace steptape::diff
