#include "replayer/planner/numbers/contradiction.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "replayer/planner/numbers/bindings.h"
#include "replayer/planner/numbers/windows.h"
#include "trace/numbers.h"
#include "trace/text/text.h"
#include "trace/value.h"

namespace steptape::replayer {
namespace {

/// What the formulas of a plan give for the numbers of another recording.
class Given {
 public:
  Given(const trace::Recording& plan, const trace::Recording& proof)
      : plan_(plan),
        proof_(proof),
        plan_elements_(plan),
        proof_elements_(proof),
        numbers_(numbers_at(proof)),
        leaves_(numbers_of(plan.leaves, numbers_)) {}

  /// Whether all that the formula reads is there.
  bool knows(trace::Index formula) const {
    return std::ranges::all_of(
        trace::leaves_of(plan_.formulas[formula]),
        [this](trace::Index leaf) { return numbers_.contains(plan_.leaves[leaf].path); });
  }

  double value(trace::Index formula) const {
    return trace::evaluate(plan_.formulas[formula], leaves_);
  }

  /// What the other recording has there.
  trace::Value recorded(const trace::ScalarSite& site) const {
    return recorded_number(proof_elements_, site);
  }

  bool fits(const trace::ScalarSite& site) const {
    const double given = value(site.formula);
    if (site.op == trace::kNone) {
      const auto element = proof_elements_.at(site);
      return element && proof_.buffers[site.buffer].bytes == plan_.buffers[site.buffer].bytes &&
             trace::is_number(recorded_number(plan_elements_, site)) &&
             trace::is_element(given, element->dtype, element->bytes);
    }
    if (!is_there(site)) return false;
    const trace::Value found = recorded(site);
    return found.data.index() == recorded_number(plan_elements_, site).data.index() &&
           trace::Real{trace::number_of(found)} == trace::Real{given};
  }

 private:
  /// A list may be a shorter one.
  bool is_there(const trace::ScalarSite& site) const {
    if (site.item == trace::kNone) return true;
    const auto* list = std::get_if<trace::List>(&proof_.ops[site.op].inputs[site.argument].data);
    return list != nullptr && site.item < list->size();
  }

  const trace::Recording& plan_;
  const trace::Recording& proof_;
  trace::Elements plan_elements_;
  trace::Elements proof_elements_;
  Numbers numbers_;
  std::vector<double> leaves_;
};

/// Of each leaf whether it is known before op `end`: all but the reads of later ops are.
std::vector<bool> leaves_known_before(const trace::Recording& recording, trace::Index end) {
  const std::vector<trace::Index> read_of = reads_of_leaves(recording);
  std::vector<bool> known;
  for (std::size_t i = 0; i < read_of.size(); ++i) {
    const bool is_read = recording.leaves[i].kind == trace::LeafKind::kHostRead;
    known.push_back(!is_read ||
                    (read_of[i] != trace::kNone && recording.reads[read_of[i]].op < end));
  }
  return known;
}

std::string path_of(const trace::ScalarSite& site) {
  const std::string path = site.op == trace::kNone
                               ? fmt::format("buffers[{}]", site.buffer)
                               : fmt::format("ops[{}].inputs[{}]", site.op, site.argument);
  return site.item == trace::kNone ? path : fmt::format("{}[{}]", path, site.item);
}

std::optional<trace::Difference> other_returned(const trace::Recording& plan,
                                                const trace::Recording& proof, const Given& given) {
  for (std::size_t i = 0; i < plan.numbers.size(); ++i) {
    const trace::Number& number = plan.numbers[i];
    const trace::Value& found = proof.numbers[i].value;
    trace::Value expected = number.value;
    if (number.formula != trace::kNone) {
      expected = {trace::Real{given.value(number.formula)}};
    } else if (number.op != trace::kNone) {
      expected = proof.ops[number.op].outputs[0];
    }
    if (trace::is_number(found) && trace::is_number(expected) &&
        trace::Real{trace::number_of(found)} == trace::Real{trace::number_of(expected)}) {
      continue;
    }
    return trace::Difference{trace::DifferenceKind::kHostRead, trace::kNone,
                             fmt::format("numbers[{}]", i), trace::print_value(expected),
                             trace::print_value(found)};
  }
  return std::nullopt;
}

/// The proof as if its modules were in training or not as those of the plan were, if they were not:
/// guards have found what the plan depends on, and a model may have no module that asks.
std::optional<trace::Recording> in_the_modes_of(const trace::Recording& plan,
                                                const trace::Recording& proof) {
  const auto same = [](const trace::Module& a, const trace::Module& b) {
    return a.path != b.path || a.training == b.training;
  };
  const std::size_t count = std::min(plan.modules.size(), proof.modules.size());
  if (std::equal(plan.modules.begin(), plan.modules.begin() + static_cast<std::ptrdiff_t>(count),
                 proof.modules.begin(), same)) {
    return std::nullopt;
  }
  trace::Recording made = proof;
  for (std::size_t i = 0; i < count; ++i) {
    if (made.modules[i].path == plan.modules[i].path)
      made.modules[i].training = plan.modules[i].training;
  }
  return made;
}

}  // namespace

std::optional<trace::Difference> other_number(const trace::Recording& plan,
                                              const trace::Recording& proof) {
  const Given given(plan, proof);
  for (const trace::ScalarSite& site : plan.scalars) {
    if (given.fits(site)) continue;
    return trace::Difference{trace::DifferenceKind::kScalar, site.op, path_of(site),
                             trace::print_value({trace::Real{given.value(site.formula)}}),
                             trace::print_value(given.recorded(site))};
  }
  return other_returned(plan, proof, given);
}

namespace {

/// Both of which have the same windows.
std::optional<trace::Difference> contradiction_of(const trace::Recording& plan,
                                                  const trace::Recording& proof) {
  // where the second has a formula, the first may have any number
  if (auto found = trace::first_difference(proof, plan)) {
    std::swap(found->expected, found->found);
    return found;
  }
  return other_number(plan, proof);
}

}  // namespace

std::optional<trace::Difference> contradiction(const trace::Recording& plan,
                                               const trace::Recording& proof) {
  if (const auto other = in_the_modes_of(plan, proof)) return contradiction(plan, *other);
  if (plan.windows.size() > proof.windows.size())
    return contradiction_of(plan, with_windows_of(plan, proof));
  return contradiction_of(plan, proof);
}

bool took_another_way(const trace::Recording& plan, const trace::Recording& proof,
                      const trace::Difference& parted) {
  if (parted.kind == trace::DifferenceKind::kHostRead && parted.op != trace::kNone) return true;
  const trace::Index end =
      parted.op == trace::kNone
          ? static_cast<trace::Index>(std::min(plan.ops.size(), proof.ops.size()))
          : parted.op;
  for (const trace::HostRead& read : plan.reads) {
    if (read.op >= end || read.use != trace::ReadUse::kChecked) continue;
    if (plan.ops[read.op].outputs != proof.ops[read.op].outputs) return true;
  }
  const Given given(plan, proof);
  const std::vector<bool> known = leaves_known_before(plan, end);
  const auto is_known = [&known](trace::Index leaf) -> bool { return known[leaf]; };
  return std::ranges::any_of(plan.predicates, [&](const trace::Predicate& predicate) {
    return std::ranges::all_of(trace::leaves_of(plan.formulas[predicate.formula]), is_known) &&
           (given.value(predicate.formula) != 0) != predicate.is_nonzero;
  });
}

namespace {

/// Two recordings, held against each other up to the op where they part.
class Pair {
 public:
  Pair(const trace::Recording& a, const trace::Recording& b)
      : a_(a), b_(b), in_a_(formulas_of(a)), in_b_(formulas_of(b)) {}

  /// How many ops both begin with, which do the same to tensors and to numbers that follow the same
  /// formulas.
  trace::Index common() const {
    trace::Index op = 0;
    while (op < std::min(a_.ops.size(), b_.ops.size()) && is_same(op)) ++op;
    return op;
  }
  bool is_same_formula(trace::Index x, trace::Index y) const {
    return std::ranges::equal(a_.formulas[x].nodes, b_.formulas[y].nodes,
                              [this](const trace::Node& m, const trace::Node& n) {
                                if (m.operation != trace::Operation::kLeaf) return m == n;
                                return n.operation == trace::Operation::kLeaf &&
                                       a_.leaves[m.leaf] == b_.leaves[n.leaf];
                              });
  }

 private:
  using Key = std::tuple<trace::Index, trace::Index, trace::Index, trace::BufferId>;
  static Key key_of(const trace::ScalarSite& site) {
    return {site.op, site.argument, site.item, site.buffer};
  }
  static std::map<Key, trace::Index> formulas_of(const trace::Recording& recording) {
    std::map<Key, trace::Index> formulas;
    for (const trace::ScalarSite& site : recording.scalars) formulas[key_of(site)] = site.formula;
    return formulas;
  }
  bool is_same(const trace::ScalarSite& site) const {
    const auto x = in_a_.find(key_of(site)), y = in_b_.find(key_of(site));
    return x != in_a_.end() && y != in_b_.end() && is_same_formula(x->second, y->second);
  }
  /// Tensors that the host made, of numbers that follow the same formulas or are the same.
  bool reads_same_constants(const trace::Value& value) const {
    bool are_same = true;
    trace::for_each_tensor(value, [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::BufferId buffer = a_.tensors[id].buffer;
      const trace::Buffer& x = a_.buffers[buffer];
      if (a_.tensors[id] != b_.tensors[id]) are_same = false;
      if (!are_same || x.role != trace::Role::kConstant || !x.path.empty()) return;
      are_same = x.digest == b_.buffers[buffer].digest || is_same({.buffer = buffer});
    });
    return are_same;
  }
  bool is_same(trace::Index op) const {
    const trace::Op &x = a_.ops[op], &y = b_.ops[op];
    if (a_.operator_of(x).full_name() != b_.operator_of(y).full_name() ||
        x.inputs.size() != y.inputs.size())
      return false;
    for (trace::Index k = 0; k < x.inputs.size(); ++k) {
      if (x.inputs[k] == y.inputs[k]) {
        if (!reads_same_constants(x.inputs[k])) return false;
        continue;
      }
      const auto* const in_x = std::get_if<trace::List>(&x.inputs[k].data);
      const auto* const in_y = std::get_if<trace::List>(&y.inputs[k].data);
      if (in_x == nullptr || in_y == nullptr) {
        if (!is_same({.op = op, .argument = k})) return false;
        continue;
      }
      if (in_x->size() != in_y->size()) return false;
      for (trace::Index i = 0; i < in_x->size(); ++i) {
        if ((*in_x)[i] != (*in_y)[i] && !is_same({.op = op, .argument = k, .item = i}))
          return false;
      }
    }
    return true;
  }

  const trace::Recording &a_, &b_;
  std::map<Key, trace::Index> in_a_, in_b_;
};

}  // namespace

trace::Index first_other_read(const trace::Recording& a, const trace::Recording& b,
                              trace::Index end) {
  for (const trace::HostRead& read : a.reads) {
    if (read.op >= end || read.use != trace::ReadUse::kChecked) continue;
    const auto other = std::ranges::find(b.reads, read.op, &trace::HostRead::op);
    if (other == b.reads.end() || other->use != trace::ReadUse::kChecked) continue;
    if (a.ops[read.op].outputs != b.ops[read.op].outputs) return read.op;
  }
  return trace::kNone;
}

bool exclude_each_other(const trace::Recording& a, const trace::Recording& b) {
  const Pair pair(a, b);
  const trace::Index end = pair.common();
  if (first_other_read(a, b, end) != trace::kNone) return true;
  const std::vector<bool> known = leaves_known_before(a, end);
  const auto is_known = [&known](trace::Index leaf) -> bool { return known[leaf]; };
  return std::ranges::any_of(a.predicates, [&](const trace::Predicate& x) {
    return std::ranges::all_of(trace::leaves_of(a.formulas[x.formula]), is_known) &&
           std::ranges::any_of(b.predicates, [&](const trace::Predicate& y) {
             return x.is_nonzero != y.is_nonzero && pair.is_same_formula(x.formula, y.formula);
           });
  });
}

void drop_refuted(const trace::Recording& before, trace::Recording& now) {
  const Given given(now, before);
  std::vector<trace::ScalarSite> kept;
  for (const trace::ScalarSite& site : now.scalars) {
    if (!given.knows(site.formula) || given.fits(site)) kept.push_back(site);
  }
  now.scalars = std::move(kept);
}

}  // namespace steptape::replayer
