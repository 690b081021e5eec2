#include "replayer/run/number_proofs.h"

#include <algorithm>
#include <utility>

#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

thread_local const NumberProofs* current_proofs = nullptr;

}  // namespace

NumberProofs::NumberProofs(const trace::Recording& recording, const trace::Recording& planned)
    : planned_(&planned), formulas_(planned.formulas.size()) {
  for (const trace::HostRead& read : recording.reads) {
    reads_.push_back({.path = trace::read_path(read.op)});
  }
  for (Proof& proof : formulas_) proof.is_held = false;
  for (const trace::ScalarSite& site : planned.scalars) {
    // the guards hold one number by itself
    formulas_[site.formula].is_held = planned.formulas[site.formula].nodes.size() > 1;
  }
  add(numbers_at(recording));
}

template <typename Visit>
void NumberProofs::for_each(const Numbers& numbers, Visit&& visit) {
  for (Proof& read : reads_) {
    const auto found = numbers.find(read.path);
    if (found != numbers.end()) visit(read, found->second);
  }
  std::vector<double> leaves;
  std::vector<bool> is_known;
  for (const trace::Leaf& leaf : planned_->leaves) {
    const auto found = numbers.find(leaf.path);
    is_known.push_back(found != numbers.end());
    leaves.push_back(is_known.back() ? found->second : 0);
  }
  for (std::size_t i = 0; i < formulas_.size(); ++i) {
    const trace::Formula& formula = planned_->formulas[i];
    const bool all_known = std::ranges::all_of(formula.nodes, [&](const trace::Node& node) {
      return node.operation != trace::Operation::kLeaf || is_known[node.leaf];
    });
    if (formulas_[i].is_held && all_known) visit(formulas_[i], trace::evaluate(formula, leaves));
  }
}

bool NumberProofs::holds(NumberOfRun number, double value) const {
  const Proof& proof = of(number);
  if (!proof.is_held) return true;
  return proof.is_pinned ? proof.proved.is_among(value) : proof.proved.holds(value);
}

void NumberProofs::add(const Numbers& numbers) {
  for_each(numbers, [](Proof& proof, double value) { proof.proved.add(value); });
}

bool NumberProofs::pin_others(const Numbers& numbers) {
  bool any = false;
  for_each(numbers, [&any](Proof& proof, double value) {
    if (!proof.is_pinned && !proof.proved.holds(value)) any = proof.is_pinned = true;
  });
  return any;
}

const NumberProofs* NumberProofs::current() noexcept { return current_proofs; }

NumberProofs::Scope::Scope(const NumberProofs* proofs)
    : previous_(std::exchange(current_proofs, proofs)) {}

NumberProofs::Scope::~Scope() { current_proofs = previous_; }

}  // namespace steptape::replayer
