#include "recorder/context/graphs.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <limits>
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

bool GraphWatch::leads_to(const torch::autograd::Node& node, Identities& seen,
                          c10::function_ref<bool(const torch::autograd::Node&)> is_it) {
  std::vector<const torch::autograd::Node*> open{&node};
  while (!open.empty()) {
    const torch::autograd::Node* at = open.back();
    open.pop_back();
    if (at->sequence_nr() == kNoSequence) continue;
    if (!seen.insert({at, at->sequence_nr()}).second) continue;
    if (is_it(*at)) return true;
    for (const torch::autograd::Edge& edge : at->next_edges()) {
      if (edge.function != nullptr) open.push_back(edge.function.get());
    }
  }
  return false;
}

bool GraphWatch::leads_out(const torch::autograd::Node& node,
                           c10::function_ref<bool(const torch::autograd::Node&)> is_before) {
  return leads_to(node, gone_over_, is_before);
}

bool GraphWatch::is_unconsumed(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.grad_fn() == nullptr) return false;
  Identities seen;
  return !leads_to(*tensor.grad_fn(), seen, [this](const torch::autograd::Node& node) {
    return ran_.count({&node, node.sequence_nr()}) != 0;
  });
}

NodeCounts::NodeCounts() : first_(at::sequence_number::peek()) {
  counts_.emplace(at::RecordFunction::currentThreadId(), Count{first_, 0});
}

bool NodeCounts::has_begun() const {
  return counts_.contains(at::RecordFunction::currentThreadId());
}

void NodeCounts::begin(bool may_have_node) {
  constexpr std::int64_t kNodesOfAThread = std::int64_t{1} << 40;
  const std::uint64_t made = at::sequence_number::peek();
  const std::uint64_t own = may_have_node && made != 0 ? 1 : 0;
  const auto number = static_cast<std::int64_t>(counts_.size()) * kNodesOfAThread;
  counts_.emplace(at::RecordFunction::currentThreadId(), Count{made - own, number});
}

std::optional<std::int64_t> NodeCounts::number_of(const torch::autograd::Node& node) const {
  const auto count = counts_.find(node.thread_id());
  if (count == counts_.end() || node.sequence_nr() < count->second.first) return std::nullopt;
  return count->second.number + static_cast<std::int64_t>(node.sequence_nr() - count->second.first);
}

}  // namespace steptape::recorder
