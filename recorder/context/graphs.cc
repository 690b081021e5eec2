#include "recorder/context/graphs.h"

#include <limits>
#include <unordered_set>
#include <vector>

namespace steptape::recorder {
namespace {

// AccumulateGrad belongs to its parameter, not to one graph, and shares this number with all.
constexpr auto kNoSequence = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void GraphWatch::on_node(const torch::autograd::Node& node) {
  const Identity identity{&node, node.sequence_nr()};
  if (identity == last_ || identity.second == kNoSequence) return;
  last_ = identity;
  ran_.insert(identity);
}

bool GraphWatch::leads_out(const torch::autograd::Node& node,
                           c10::function_ref<bool(const torch::autograd::Node&)> is_before) {
  std::vector<const torch::autograd::Node*> open{&node};
  while (!open.empty()) {
    const torch::autograd::Node* at = open.back();
    open.pop_back();
    if (at->sequence_nr() == kNoSequence) continue;
    if (!gone_over_.insert({at, at->sequence_nr()}).second) continue;
    if (is_before(*at)) return true;
    for (const torch::autograd::Edge& edge : at->next_edges()) {
      if (edge.function != nullptr) open.push_back(edge.function.get());
    }
  }
  return false;
}

bool GraphWatch::is_unconsumed(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.grad_fn() == nullptr) return false;
  std::vector<const torch::autograd::Node*> open{tensor.grad_fn().get()};
  std::unordered_set<const torch::autograd::Node*> seen{open.front()};
  while (!open.empty()) {
    const torch::autograd::Node* node = open.back();
    open.pop_back();
    if (ran_.count({node, node->sequence_nr()}) != 0) return false;
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      const auto* next = edge.function.get();
      if (next != nullptr && seen.insert(next).second) open.push_back(next);
    }
  }
  return true;
}

}  // namespace steptape::recorder
