#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tests/simulated_cuda/work.h"

namespace steptape::tests::simulated {

class Graph;

/// A node of a captured graph; its address is the cudaGraphNode_t.
struct Node {
  Work work;
  std::vector<Node*> dependencies;
  std::vector<void*> parameter_addresses;  ///< what cudaGraphKernelNodeGetParams points at
};

/// What a capture makes; its address is the cudaGraph_t.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Node* add(Work work, std::vector<Node*> dependencies);
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }

  /// True where each node has a path to one of `ends`.
  bool is_joined_by(const std::vector<Node*>& ends) const;

 private:
  std::vector<std::unique_ptr<Node>> nodes_;  ///< each after its dependencies
};

/// True while the node's graph exists.
bool is_live(const Node* node);

/// A graph made ready to run; its address is the cudaGraphExec_t. Holds copies of the works, so
/// that it outlives the graph, as in CUDA.
class Executable {
 public:
  explicit Executable(const Graph& graph);

  /// Replaces the parameter values of a kernel node for the launches from now on. False when the
  /// node is none of this graph's kernel nodes or the parameters are of another function.
  bool set_parameters(const Node* node, const cudaKernelNodeParams& parameters);

  /// Takes the parameter values of `graph`, which must have the same shape; the first node that
  /// differs is returned, or nullptr when there is none. `is_same_shape` false: other node counts.
  const Node* update(const Graph& graph, bool& is_same_shape);

  /// The works in an order that the dependencies allow, drawn by `seed` among the allowed ones.
  std::vector<Work> launch(std::uint64_t seed) const;

 private:
  struct Step {
    const Node* node;
    Work work;
    std::vector<std::size_t> dependencies;
  };
  std::vector<Step> steps_;
};

}  // namespace steptape::tests::simulated
