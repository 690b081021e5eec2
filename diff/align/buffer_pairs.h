#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

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

}  // namespace steptape::diff
