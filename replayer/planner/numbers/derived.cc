#include "replayer/planner/numbers/derived.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "replayer/planner/numbers/bindings.h"
#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

/// Which of the leaves are integers, and which op's read they wait for.
class Leaves {
 public:
  Leaves(const trace::Recording& before, const trace::Recording& now)
      : then_(numbers_at(before)),
        here_(numbers_at(now)),
        before_(numbers_of(now.leaves, then_)),
        now_(numbers_of(now.leaves, here_)),
        leaves_(now.leaves),
        reads_(now.reads),
        read_of_(reads_of_leaves(now)) {
    for (const trace::HostRead& read : now.reads) {
      note(trace::read_path(read.op), now.ops[read.op].outputs[0]);
    }
    for (const trace::Input& input : now.inputs) note(input.path, input.value);
    for (const trace::NamedValue& value : now.host_values) note(value.name, value.value);
    for (const trace::OptimizerLayout& layout : now.optimizers) {
      trace::for_each_number(layout, [this](const std::string& path, const trace::Value& value) {
        note(path, value);
      });
    }
  }

  /// None where one of its leaves is unknown, or it is the same in both recordings.
  std::optional<Derived> number(const trace::Formula& formula) const {
    Derived derived{formula, trace::evaluate(formula, before_), trace::evaluate(formula, now_),
                    true};
    if (trace::Real{derived.before} == trace::Real{derived.now}) return std::nullopt;
    for (const trace::Index leaf : trace::leaves_of(formula)) {
      const std::string& path = leaves_[leaf].path;
      if (!then_.contains(path) || !here_.contains(path)) return std::nullopt;
      const auto integer = integers_.find(path);
      derived.is_integer &= integer != integers_.end() && integer->second;
      if (read_of_[leaf] == trace::kNone) continue;
      derived.known_at = std::max<std::int64_t>(derived.known_at, reads_[read_of_[leaf]].op);
    }
    return derived;
  }

 private:
  void note(const std::string& path, const trace::Value& value) {
    integers_.emplace(path, std::holds_alternative<std::int64_t>(value.data));
  }

  Numbers then_, here_;
  std::vector<double> before_, now_;
  const std::vector<trace::Leaf>& leaves_;
  const std::vector<trace::HostRead>& reads_;
  std::vector<trace::Index> read_of_;  ///< by leaf
  std::map<std::string, bool> integers_;
};

}  // namespace

std::vector<Derived> derived_numbers(const trace::Recording& before, const trace::Recording& now) {
  const Leaves leaves(before, now);
  std::vector<Derived> derived;
  const auto add = [&](const trace::Formula& formula) {
    if (auto number = leaves.number(formula)) derived.push_back(*std::move(number));
  };
  // a count of steps looks like much else that goes on by one
  const auto may_explain = [&now](trace::Index leaf) {
    return now.leaves[leaf].kind != trace::LeafKind::kStateNumber;
  };
  for (trace::Index i = 0; i < now.leaves.size(); ++i) {
    if (may_explain(i)) add(trace::leaf(i));
  }
  std::vector<bool> is_there(now.formulas.size());
  for (const trace::ScalarSite& site : now.scalars) {
    const trace::Formula& formula = now.formulas[site.formula];
    const bool is_leaf = formula.nodes.size() == 1 &&
                         formula.nodes[0].operation == trace::Operation::kLeaf &&
                         may_explain(formula.nodes[0].leaf);
    if (!is_leaf && !is_there[site.formula]) add(formula);
    is_there[site.formula] = true;
  }
  return derived;
}

std::vector<Derived> made_of(const Derived& number) {
  const trace::Formula& f = number.formula;
  const trace::Formula one = trace::constant(1);
  std::vector<Derived> made;
  const auto add = [&](trace::Formula formula, auto&& value, bool keeps_integers) {
    if (!trace::is_well_formed(formula, trace::kNone)) return;
    made.push_back({std::move(formula), value(number.before), value(number.now),
                    number.is_integer && keeps_integers, number.known_at});
  };
  add(
      f - one, [](double x) { return x - 1; }, true);
  add(
      one - f, [](double x) { return 1 - x; }, true);
  add(
      -f, [](double x) { return -x; }, true);
  add(
      one / f, [](double x) { return 1 / x; }, false);
  add(
      one / (one - f), [](double x) { return 1 / (1 - x); }, false);
  return made;
}

}  // namespace steptape::replayer
