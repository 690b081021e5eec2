#include "replayer/planner/numbers/evaluator.h"

#include <algorithm>
#include <bit>
#include <map>

#include "replayer/planner/numbers/bindings.h"
#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

using Shape = std::vector<std::uint64_t>;

/// What optimizers have one of for each parameter: a count in their state, or what a tensor of
/// theirs gives the host.
bool is_counter(const trace::Leaf& leaf) {
  return leaf.kind == trace::LeafKind::kStateNumber || leaf.kind == trace::LeafKind::kHostRead;
}

/// The formula with every step counter taken for the same one.
Shape shape_of(const trace::Recording& recording, const trace::Formula& formula) {
  Shape shape;
  for (const trace::Node& node : formula.nodes) {
    shape.push_back(static_cast<std::uint64_t>(node.operation));
    if (node.operation == trace::Operation::kConstant) {
      shape.push_back(std::bit_cast<std::uint64_t>(node.constant.value));
    } else if (node.operation == trace::Operation::kLeaf) {
      shape.push_back(is_counter(recording.leaves[node.leaf]) ? trace::kNone : node.leaf);
    }
  }
  return shape;
}

/// The one step counter that a formula reads; kNone for none, or for several.
trace::Index counter_of(const trace::Recording& recording, const trace::Formula& formula) {
  trace::Index counter = trace::kNone;
  for (const trace::Index leaf : trace::leaves_of(formula)) {
    if (!is_counter(recording.leaves[leaf])) continue;
    if (counter != trace::kNone && counter != leaf) return trace::kNone;
    counter = leaf;
  }
  return counter;
}

}  // namespace

Evaluator::Evaluator(const trace::Recording& recording, std::span<const trace::Index> order)
    : recording_(recording),
      leaves_(recording.leaves.size()),
      values_(recording.formulas.size()),
      waits_for_(recording.formulas.size(), trace::kNone),
      leaves_of_read_(recording.reads.size()),
      waiting_(recording.reads.size()) {
  const std::vector<trace::Index> read_of_leaf = reads_of_leaves(recording);
  for (trace::Index i = 0; i < recording.leaves.size(); ++i) {
    if (read_of_leaf[i] != trace::kNone) leaves_of_read_[read_of_leaf[i]].push_back(i);
  }
  const auto is_later = [&order](trace::Index read, trace::Index other) {
    return order.empty() ? read > other : order[read] > order[other];
  };
  std::map<Shape, trace::Index> shapes;
  for (trace::Index i = 0; i < recording.formulas.size(); ++i) {
    const trace::Formula& formula = recording.formulas[i];
    for (const trace::Index leaf : trace::leaves_of(formula)) {
      const trace::Index read = read_of_leaf[leaf];
      if (read == trace::kNone) continue;
      if (waits_for_[i] == trace::kNone || is_later(read, waits_for_[i])) waits_for_[i] = read;
    }
    if (waits_for_[i] != trace::kNone) waiting_[waits_for_[i]].push_back(i);
    counter_.push_back(counter_of(recording, formula));
    shape_.push_back(trace::kNone);
    if (counter_.back() == trace::kNone) continue;
    const auto next = static_cast<trace::Index>(memos_.size());
    const auto [entry, is_new] = shapes.try_emplace(shape_of(recording, formula), next);
    if (is_new) memos_.emplace_back();
    shape_.back() = entry->second;
  }
}

void Evaluator::begin(std::span<const double> leaves) {
  ++run_;
  std::copy_n(leaves.begin(), std::min(leaves.size(), leaves_.size()), leaves_.begin());
  for (trace::Index i = 0; i < values_.size(); ++i) {
    if (waits_for_[i] == trace::kNone) evaluate(i);
  }
}

bool Evaluator::read(trace::Index read, double value) {
  if (leaves_of_read_[read].empty()) return false;
  for (const trace::Index leaf : leaves_of_read_[read]) leaves_[leaf] = value;
  for (const trace::Index formula : waiting_[read]) evaluate(formula);
  return true;
}

void Evaluator::evaluate(trace::Index formula) {
  const trace::Formula& expression = recording_.formulas[formula];
  if (shape_[formula] == trace::kNone) {
    values_[formula] = trace::evaluate(expression, leaves_);
    return;
  }
  Memo& memo = memos_[shape_[formula]];
  const double count = leaves_[counter_[formula]];
  const bool is_same =
      std::bit_cast<std::uint64_t>(memo.count) == std::bit_cast<std::uint64_t>(count);
  if (memo.run != run_ || !is_same) {
    memo = {count, trace::evaluate(expression, leaves_), run_};
  }
  values_[formula] = memo.value;
}

}  // namespace steptape::replayer
