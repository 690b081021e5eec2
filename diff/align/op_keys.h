#pragma once

#include <cstdint>
#include <vector>

#include "diff/align/buffer_pairs.h"
#include "diff/op_stream.h"

namespace steptape::diff {

/// What an op is looked for by, as numbers: equal ones stand for equal things.
struct OpKeys {
  std::uint64_t name = 0;   ///< the operator without its overload, and the phase
  std::uint64_t place = 0;  ///< module call and phase
  /// Operator without overload, kinds of arguments, and of each tensor its path, or which operator
  /// made it: no dtype, shape or scalar.
  std::uint64_t structure = 0;
  std::uint64_t content = 0;             ///< all that StreamOp::text says
  std::uint64_t arguments = 0;           ///< the same without the operator
  std::uint64_t exact = 0;               ///< content and structure
  bool has_path = false;                 ///< a path leads to one of its tensors
  std::vector<trace::BufferId> buffers;  ///< StreamOp::buffers
};

/// One for each op.
std::vector<OpKeys> keys_of(const OpStream& stream);

/// Tells `pairs` what follows when the two ops stand for each other.
void join_buffers(BufferPairs& pairs, const OpKeys& a, const OpKeys& b);

}  // namespace steptape::diff
