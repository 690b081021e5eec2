#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "diff/op_stream.h"
#include "trace/model.h"

namespace steptape::diff {

/// Which buffers of two recordings stand for each other, one to one, as paired ops tell.
class BufferPairs {
 public:
  /// Whether the two may stand for each other: they do, or neither stands for any.
  bool may_join(trace::BufferId a, trace::BufferId b) const {
    const auto other = b_of_a_.find(a);
    return other == b_of_a_.end() ? !a_of_b_.contains(b) : other->second == b;
  }
  /// The same, and from now on they do.
  bool join(trace::BufferId a, trace::BufferId b) {
    if (!may_join(a, b)) return false;
    b_of_a_.emplace(a, b);
    a_of_b_.emplace(b, a);
    return true;
  }
  /// The buffer of the second recording that stands for `a`, or kNone.
  trace::BufferId partner_of_a(trace::BufferId a) const {
    const auto other = b_of_a_.find(a);
    return other == b_of_a_.end() ? trace::kNone : other->second;
  }
  /// All pairs, in no order.
  std::vector<std::pair<trace::BufferId, trace::BufferId>> all() const {
    return {b_of_a_.begin(), b_of_a_.end()};
  }
  /// The same, with the recordings the other way round.
  BufferPairs swapped() && {
    std::swap(b_of_a_, a_of_b_);
    return std::move(*this);
  }

 private:
  std::unordered_map<trace::BufferId, trace::BufferId> b_of_a_, a_of_b_;
};

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
