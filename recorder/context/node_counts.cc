#include "recorder/context/node_counts.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

namespace steptape::recorder {

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
