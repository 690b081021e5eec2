#include "tests/simulated_cuda/graph.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <unordered_map>
#include <unordered_set>

namespace steptape::tests::simulated {
namespace {

std::unordered_set<const Node*>& live_nodes() {
  static auto& nodes = *new std::unordered_set<const Node*>;
  return nodes;
}

}  // namespace

bool is_live(const Node* node) { return live_nodes().count(node) != 0; }

Graph::~Graph() {
  for (const auto& node : nodes_) live_nodes().erase(node.get());
}

Node* Graph::add(Work work, std::vector<Node*> dependencies) {
  auto node = std::make_unique<Node>(Node{std::move(work), std::move(dependencies), {}});
  if (node->work.function) {
    auto* const values = const_cast<std::byte*>(node->work.parameters->data());
    for (const std::size_t offset : node->work.function->offsets)
      node->parameter_addresses.push_back(values + offset);
  }
  live_nodes().insert(node.get());
  return nodes_.emplace_back(std::move(node)).get();
}

bool Graph::is_joined_by(const std::vector<Node*>& ends) const {
  std::unordered_set<const Node*> joined;
  std::vector<const Node*> open(ends.begin(), ends.end());
  while (!open.empty()) {
    const Node* const node = open.back();
    open.pop_back();
    if (!joined.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  return joined.size() == nodes_.size();
}

Executable::Executable(const Graph& graph) {
  std::unordered_map<const Node*, std::size_t> index;
  for (const auto& node : graph.nodes()) {
    Step step{node.get(), node->work, {}};
    for (const Node* dependency : node->dependencies)
      step.dependencies.push_back(index.at(dependency));
    index[node.get()] = steps_.size();
    steps_.push_back(std::move(step));
  }
}

bool Executable::set_parameters(const Node* node, const cudaKernelNodeParams& parameters) {
  const auto step = std::find_if(steps_.begin(), steps_.end(),
                                 [&](const Step& candidate) { return candidate.node == node; });
  if (step == steps_.end() || !step->work.function || parameters.func != step->work.function ||
      !parameters.kernelParams)
    return false;
  auto values = std::make_shared<Parameters>(*step->work.parameters);
  const Function& function = *step->work.function;
  for (std::size_t i = 0; i < function.sizes.size(); ++i)
    std::memcpy(values->data() + function.offsets[i], parameters.kernelParams[i],
                function.sizes[i]);
  step->work.parameters = std::move(values);
  step->work.grid = parameters.gridDim;
  step->work.block = parameters.blockDim;
  return true;
}

const Node* Executable::update(const Graph& graph, bool& is_same_shape) {
  is_same_shape = graph.nodes().size() == steps_.size();
  if (!is_same_shape) return nullptr;
  const Executable other(graph);
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (other.steps_[i].work.type != steps_[i].work.type ||
        other.steps_[i].work.function != steps_[i].work.function ||
        other.steps_[i].dependencies != steps_[i].dependencies)
      return other.steps_[i].node;
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].work = other.steps_[i].work;
  return nullptr;
}

std::vector<Work> Executable::launch(std::uint64_t seed) const {
  std::mt19937_64 draw(seed);
  std::vector<Work> works;
  std::vector<bool> is_done(steps_.size(), false);
  std::vector<std::size_t> open(steps_.size());
  for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    std::vector<std::size_t> ready;
    for (std::size_t position = 0; position < open.size(); ++position) {
      const auto& dependencies = steps_[open[position]].dependencies;
      if (std::all_of(dependencies.begin(), dependencies.end(),
                      [&](std::size_t i) { return is_done[i]; }))
        ready.push_back(position);
      if (ready.size() == 8) break;
    }
    // Seed 0 takes the branch that was captured last.
    const std::size_t position = ready[seed == 0 ? ready.size() - 1 : draw() % ready.size()];
    const std::size_t index = open[position];
    is_done[index] = true;
    works.push_back(steps_[index].work);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(position));
  }
  return works;
}

}  // namespace steptape::tests::simulated
