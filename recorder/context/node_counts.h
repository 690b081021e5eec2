#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace steptape::recorder {

/// Tells autograd's nodes that a step made from those that were there before it. Each thread counts
/// the nodes that it makes. On a GPU backward runs on a thread of the device's, which makes nodes
/// of its own where gradients are to be differentiated once more.
class NodeCounts {
 public:
  /// The step begins on this thread.
  NodeCounts();

  /// How many nodes this thread had made when the step began on it.
  std::uint64_t first() const { return first_; }

  /// Whether the step has begun on this thread.
  bool has_begun() const;
  /// It begins here with the op that is about to run, for which autograd may have made a node
  /// (`may_have_node`): of other threads than the step's own only their count now is known.
  void begin(bool may_have_node);

  /// The node's number within the step, not the same for any two; none for a node that was made
  /// before the step.
  std::optional<std::int64_t> number_of(const torch::autograd::Node& node) const;

 private:
  struct Count {
    std::uint64_t first;
    std::int64_t number;  ///< of the first node
  };

  std::uint64_t first_;
  std::unordered_map<std::uint64_t, Count> counts_;  ///< by LibTorch's number of the thread
};

}  // namespace steptape::recorder
