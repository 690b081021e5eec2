#pragma once

#include <string_view>
#include <vector>

#include "diff/align/op_keys.h"
#include "diff/op_stream.h"

namespace steptape::diff {

/// How two ops were found to be one.
enum class MatchedBy : std::uint8_t {
  kModuleCall,  ///< the same call of the same module in the same phase; in it, by their order
  kSequence,    ///< their order between neighbours that are paired
  kContent,     ///< they do the same to the same tensors, though elsewhere in the step
};

std::string_view name_of(MatchedBy matched_by) noexcept;

/// An op of the first recording and the one of the second that stands for it.
struct OpPair {
  trace::Index a = trace::kNone;
  trace::Index b = trace::kNone;
  MatchedBy matched_by = MatchedBy::kSequence;
  bool is_moved = false;  ///< other paired ops stand before it than did
  friend bool operator==(const OpPair&, const OpPair&) = default;
};

struct Alignment {
  std::vector<OpPair> pairs;  ///< by `a`
  BufferPairs buffers;        ///< those that no path leads to
};

/// Pairs the ops of two recordings.
///
/// 1. Ops of the same module call and phase are aligned with each other, at the least cost where
///    few of them differ: 1 for an op that only one side has, 1 for a pair that differs. A pair has
///    one operator, overload aside, or the same arguments. Ops that no module issued form one such
///    group.
/// 2. What is left between the same paired neighbours is aligned in the same way, whatever module
///    it belongs to; a pair has one operator and phase.
/// 3. What is left then is paired with an equal op elsewhere, in another module only where a path
///    leads to one of its tensors.
/// 4. As few pairs as possible count as moved: those outside a longest run that has one order.
///
/// align(b, a) gives the same pairs, the other way round.
Alignment align(const OpStream& a, const OpStream& b);

}  // namespace steptape::diff
