#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

namespace steptape::recorder {

/// The autograd nodes that ran inside the step. A node's address may serve another node later; its
/// sequence number does not.
class GraphWatch {
 public:
  void on_node(const torch::autograd::Node& node);
  /// Whether the graph leads from `node` to one that `is_before` tells to be older than the step.
  /// What an earlier call has come by is not gone over again.
  bool leads_out(const torch::autograd::Node& node,
                 c10::function_ref<bool(const torch::autograd::Node&)> is_before);
  /// Whether `tensor` carries a graph of which no node ran.
  bool is_unconsumed(const at::Tensor& tensor) const;

 private:
  using Identity = std::pair<const torch::autograd::Node*, std::uint64_t>;
  struct Hash {
    std::size_t operator()(const Identity& identity) const noexcept {
      return reinterpret_cast<std::uintptr_t>(identity.first) ^
             identity.second * 0x9e3779b97f4a7c15u;
    }
  };
  using Identities = ska::flat_hash_set<Identity, Hash>;

  /// Whether the graph leads from `node` to one that `is_it`; not over those in `seen`, where each
  /// that is met is added.
  static bool leads_to(const torch::autograd::Node& node, Identities& seen,
                       c10::function_ref<bool(const torch::autograd::Node&)> is_it);

  Identities ran_;
  Identities gone_over_;
  Identity last_{nullptr, 0};
};

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
