#include "replayer/runtime/number_proofs.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_set>

#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::replayer {

std::string first_line(const std::exception& error) {
  const auto* known = dynamic_cast<const c10::Error*>(&error);
  const std::string text = known != nullptr ? known->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

AssumptionViolated undone_for(const std::exception& error) {
  return {RefusalCode::kReplayThrew, Verdict{"the replay", "runs to its end",
                                             "threw: " + first_line(error), GuardKind::kException}};
}

NumberProofs::NumberProofs(const trace::Recording& recording)
    : recording_(&recording), formulas_(recording.formulas.size()) {
  for (const trace::HostRead& read : recording.reads) {
    reads_.push_back({.path = trace::read_path(read.op)});
  }
  for (Proof& proof : formulas_) proof.is_held = proof.enters_op = false;
  for (const trace::ScalarSite& site : recording.scalars) {
    formulas_[site.formula].enters_op = true;
    // the guards hold one number by itself
    formulas_[site.formula].is_held = recording.formulas[site.formula].nodes.size() > 1;
  }
  add(numbers_at(recording));
}

NumberProofs NumberProofs::of_file(const trace::Recording& recording) {
  NumberProofs proofs(recording);
  for (Proof& read : proofs.reads_) read.is_held = false;
  for (Proof& formula : proofs.formulas_) formula.is_held = false;
  for (const trace::Proof& proof : recording.proofs) {
    Proof& held = proofs.formulas_[proof.formula];
    held.is_held = true;
    held.proved = proof.proved;
    held.is_pinned = proof.is_pinned;
  }
  return proofs;
}

void NumberProofs::describe(trace::Recording& recording,
                            const std::function<bool(const std::string&)>& is_pinned) const {
  std::unordered_set<std::string> pinned_reads;
  for (const Proof& read : reads_) {
    if (read.is_pinned) pinned_reads.insert(read.path);
  }
  const auto is_leaf_pinned = [&](const trace::Node& node) {
    if (node.operation != trace::Operation::kLeaf) return false;
    const std::string& path = recording.leaves[node.leaf].path;
    return is_pinned(path) || pinned_reads.contains(path);
  };
  for (trace::Proof& proof : recording.proofs) {
    proof.proved = formulas_[proof.formula].proved;
    proof.is_pinned = formulas_[proof.formula].is_pinned ||
                      std::ranges::any_of(recording.formulas[proof.formula].nodes, is_leaf_pinned);
  }
}

template <typename Visit>
void NumberProofs::for_each(const Numbers& numbers, Visit&& visit) {
  for (Proof& read : reads_) {
    const auto found = numbers.find(read.path);
    if (found != numbers.end()) visit(read, found->second);
  }
  std::vector<double> leaves;
  std::vector<bool> is_known;
  for (const trace::Leaf& leaf : recording_->leaves) {
    const auto found = numbers.find(leaf.path);
    is_known.push_back(found != numbers.end());
    leaves.push_back(is_known.back() ? found->second : 0);
  }
  for (std::size_t i = 0; i < formulas_.size(); ++i) {
    const trace::Formula& formula = recording_->formulas[i];
    const bool all_known = std::ranges::all_of(
        trace::leaves_of(formula), [&](trace::Index leaf) -> bool { return is_known[leaf]; });
    if (formulas_[i].enters_op && all_known) visit(formulas_[i], trace::evaluate(formula, leaves));
  }
}

bool NumberProofs::holds(NumberOfRun number, double value) const {
  const Proof& proof = of(number);
  return !proof.is_held || proof.holds(value);
}

std::string NumberProofs::words(NumberOfRun number) const {
  const Proof& proof = of(number);
  if (proof.proved.is_trusted() && !proof.is_pinned) return "of a kind that was proved";
  std::string words;
  for (const double value : proof.proved.values()) {
    words += (words.empty() ? "" : ", ") + trace::words_of({trace::Real{value}});
  }
  return words + " (proved)";
}

void NumberProofs::add(const Numbers& numbers) {
  for_each(numbers, [](Proof& proof, double value) { proof.proved.add(value); });
}

bool NumberProofs::pin_others(const Numbers& numbers) {
  bool any = false;
  for_each(numbers, [&any](Proof& proof, double value) {
    if (proof.is_held && !proof.holds(value)) any = proof.is_pinned = true;
  });
  return any;
}

}  // namespace steptape::replayer
