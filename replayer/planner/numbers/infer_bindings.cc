#include "replayer/planner/numbers/infer_bindings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "live/operators.h"
#include "replayer/planner/numbers/bindings.h"
#include "replayer/planner/numbers/derived.h"
#include "trace/numbers.h"
#include "trace/value.h"

namespace steptape::replayer {
namespace {

/// Of a tensor whose elements may follow numbers each; a longer one is data.
constexpr std::size_t kMostElements = 16;

/// As doubles, by their bits.
bool same_number(const trace::Value& a, const trace::Value& b) {
  return trace::Real{trace::number_of(a)} == trace::Real{trace::number_of(b)};
}

/// What a number may follow: a number of its own kind, and a real number an integer as well. A flag
/// that stands for "not zero", or an integer that was rounded, is a decision of the program.
bool may_follow(const trace::Value& number, const trace::Value& leaf) {
  if (number.data.index() == leaf.data.index()) return true;
  return std::holds_alternative<trace::Real>(number.data) &&
         std::holds_alternative<std::int64_t>(leaf.data);
}

bool may_follow(trace::DType dtype, const trace::Value& leaf) {
  return may_follow(trace::element_of(std::vector<std::byte>(16).data(), dtype), leaf);
}

bool holds_reals(trace::DType dtype) {
  return std::holds_alternative<trace::Real>(
      trace::element_of(std::vector<std::byte>(16).data(), dtype).data);
}

/// A number that may explain others: it differs between the two recordings.
struct Candidate {
  trace::LeafKind kind;
  std::string path;
  trace::Value before, now;
  std::int64_t known_at = -1;  ///< the op that gave it; -1: known when the step begins
};

std::set<trace::Index> leaves_in(const trace::Formula& formula) {
  auto leaves = trace::leaves_of(formula);
  return {leaves.begin(), leaves.end()};
}

class Explanation {
 public:
  Explanation(const trace::Recording& before, trace::Recording& now)
      : before_(before), now_(now), bindings_(now) {}

  void explain(Reads reads, const std::set<trace::Index>* only) {
    if (before_.ops.size() != now_.ops.size() || before_.buffers.size() != now_.buffers.size() ||
        before_.inputs.size() != now_.inputs.size()) {
      return;
    }
    only_ = only;
    for (trace::Index op = 0; op < now_.ops.size(); ++op) {
      nodes_[now_.ops[op].sequence].push_back(op);
    }
    collect();
    infer_places();
    derived_ = derived_numbers(before_, now_);
    infer_places();
    infer_returned();
    settle_reads(reads);
  }

 private:
  void collect() {
    for (std::size_t i = 0; i < now_.inputs.size(); ++i) {
      offer(trace::LeafKind::kArgument, now_.inputs[i].path, before_.inputs[i].value,
            now_.inputs[i].value);
    }
    for (std::size_t i = 0; i < std::min(before_.host_values.size(), now_.host_values.size());
         ++i) {
      offer(trace::LeafKind::kHostValue, now_.host_values[i].name, before_.host_values[i].value,
            now_.host_values[i].value);
    }
    for (const trace::HostRead& read : now_.reads) {
      const auto& outputs = before_.ops[read.op].outputs;
      if (outputs.size() != 1) continue;
      offer(trace::LeafKind::kHostRead, trace::read_path(read.op), outputs[0],
            now_.ops[read.op].outputs[0], read.op);
    }
  }

  void offer(trace::LeafKind kind, const std::string& path, const trace::Value& before,
             const trace::Value& now, std::int64_t known_at = -1) {
    const bool is_left_out =
        only_ != nullptr && (kind != trace::LeafKind::kHostRead ||
                             !only_->contains(static_cast<trace::Index>(known_at)));
    if (is_left_out) return;
    if (before == now || before.data.index() != now.data.index()) return;
    if (!trace::is_exact_number(before) || !trace::is_exact_number(now)) return;
    candidates_.push_back({kind, path, before, now, known_at});
  }

  void infer_places() {
    infer_arguments();
    infer_contents();
  }

  void infer_arguments() {
    for (trace::Index op = 0; op < now_.ops.size(); ++op) {
      const auto handle = live::find_operator(now_.operator_of(now_.ops[op]));
      const auto& before = before_.ops[op].inputs;
      const auto& now = now_.ops[op].inputs;
      if (!handle || before.size() != now.size()) return;
      const std::vector<bool> follow = live::arguments_that_may_follow(*handle);
      for (trace::Index k = 0; k < std::min(now.size(), follow.size()); ++k) {
        if (follow[k]) infer_argument(op, k, before[k], now[k]);
      }
    }
  }

  void infer_argument(trace::Index op, trace::Index argument, const trace::Value& before,
                      const trace::Value& now) {
    const auto* a = std::get_if<trace::List>(&before.data);
    const auto* b = std::get_if<trace::List>(&now.data);
    if (a == nullptr || b == nullptr) {
      infer_site({op, argument, trace::kNone, trace::kNone, trace::kNone}, before, now, op);
      return;
    }
    for (trace::Index i = 0; i < std::min(a->size(), b->size()); ++i) {
      infer_site({op, argument, i, trace::kNone, trace::kNone}, (*a)[i], (*b)[i], op);
    }
  }

  void infer_site(const trace::ScalarSite& site, const trace::Value& before,
                  const trace::Value& now, std::int64_t used_at) {
    if (!trace::is_number(before) || !trace::is_number(now) || before == now) return;
    if (before.data.index() != now.data.index() || is_known(site)) return;
    bind(site, used_at, [&](const Candidate& candidate) {
      return may_follow(now, candidate.now) && same_number(candidate.before, before) &&
             same_number(candidate.now, now);
    });
    const bool is_real = std::holds_alternative<trace::Real>(now.data);
    derive(site, used_at, [&](const Derived& number) {
      return (is_real || number.is_integer) &&
             trace::Real{trace::number_of(before)} == trace::Real{number.before} &&
             trace::Real{trace::number_of(now)} == trace::Real{number.now};
    });
  }

  /// The elements of tensors that the host made: wrapped numbers, `torch::tensor(x)`.
  void infer_contents() {
    std::vector<std::int64_t> first_use(now_.buffers.size(), -1);
    for (std::size_t op = now_.ops.size(); op-- > 0;) {
      for_each_buffer(now_, now_.ops[op].inputs,
                      [&](trace::BufferId id) { first_use[id] = static_cast<std::int64_t>(op); });
    }
    for (const trace::Tensor& tensor : now_.tensors) {
      const trace::Buffer& before = before_.buffers[tensor.buffer];
      const trace::Buffer& now = now_.buffers[tensor.buffer];
      const bool host_made = now.role == trace::Role::kConstant && now.path.empty();
      if (!host_made || !before.content || !now.content || *before.content == *now.content)
        continue;
      if (before.bytes != now.bytes) continue;
      trace::for_each_element(now, tensor.dtype, kMostElements, [&](trace::Index item) {
        infer_element(tensor, item, first_use[tensor.buffer]);
      });
    }
  }

  void infer_element(const trace::Tensor& tensor, trace::Index item, std::int64_t used_at) {
    const trace::ScalarSite site{trace::kNone, trace::kNone, item, tensor.buffer, trace::kNone};
    const auto before = trace::element_at(before_.buffers[tensor.buffer], tensor.dtype, item);
    const auto now = trace::element_at(now_.buffers[tensor.buffer], tensor.dtype, item);
    if (!before || !now || std::ranges::equal(before->bytes, now->bytes)) return;
    if (is_known(site)) return;
    const auto holds = [&](const trace::Element& element, double number) {
      return trace::is_element(number, element.dtype, element.bytes);
    };
    bind(site, used_at, [&](const Candidate& candidate) {
      return may_follow(tensor.dtype, candidate.now) &&
             holds(*before, trace::number_of(candidate.before)) &&
             holds(*now, trace::number_of(candidate.now));
    });
    // what the program puts into a tensor is known; what LibTorch's backward makes a number of is
    // not
    if (only_ != nullptr && !tensor.wrapped_number) return;
    derive(site, used_at, [&](const Derived& number) {
      return (number.is_integer || holds_reals(tensor.dtype)) && holds(*before, number.before) &&
             holds(*now, number.now);
    });
  }

  /// Binds the place to the first candidate that fits. Which of several it follows cannot be told
  /// while they are equal: the plan holds while they stay so.
  template <typename Fits>
  void bind(const trace::ScalarSite& site, std::int64_t used_at, Fits&& fits) {
    if (bound_here(site)) return;
    std::optional<trace::Formula> bound;
    const auto given = given_to_node(used_at);
    for (const Candidate& candidate : candidates_) {
      if (candidate.known_at >= used_at && candidate.known_at >= 0) continue;
      if (given && !given->contains(candidate.path)) continue;
      if (!fits(candidate)) continue;
      const trace::Formula leaf = leaf_of(candidate);
      if (!bound) {
        bindings_.bind(site, leaf);
        bound = leaf;
      } else {
        bindings_.require(trace::same_bits(*bound, leaf), true);
      }
    }
    if (bound) bound_.push_back({site, *bound});
  }

  /// The same for what the step computes of its numbers, and then for what torch makes of that.
  template <typename Fits>
  void derive(const trace::ScalarSite& site, std::int64_t used_at, Fits&& fits) {
    std::optional<trace::Formula> bound = bound_here(site);
    const auto given = given_to_node(used_at);
    const auto was_given = [&](trace::Index leaf) {
      return !given || given->contains(now_.leaves[leaf].path);
    };
    const auto take = [&](const Derived& number, auto&& may_part) {
      if (number.known_at >= used_at && number.known_at >= 0) return;
      if (!std::ranges::all_of(leaves_in(number.formula), was_given)) return;
      if (!fits(number)) return;
      if (!bound) {
        bindings_.bind(site, number.formula);
        bound = number.formula;
      } else if (number.formula != *bound && may_part(number.formula)) {
        bindings_.require(trace::same_bits(*bound, number.formula), true);
      }
    };
    const auto always = [](const trace::Formula&) { return true; };
    for (const Derived& number : derived_) take(number, always);
    // what torch makes of the same numbers and comes to the same differs in how it rounds
    const bool is_direct = bound.has_value();
    const auto of_others = [&](const trace::Formula& formula) {
      return !is_direct || leaves_in(formula) != leaves_in(*bound);
    };
    for (const Derived& number : derived_) {
      for (const Derived& made : made_of(number)) take(made, of_others);
    }
  }

  /// What the numbers of an op of backward may follow: the paths of those that ops of its node were
  /// given before it. Another number that happens to be the same says nothing of it. None: it is no
  /// such op, and its numbers may follow any.
  std::optional<std::set<std::string>> given_to_node(std::int64_t at) const {
    if (at < 0) return std::nullopt;
    const trace::Op& op = now_.ops[static_cast<std::size_t>(at)];
    if (op.phase != trace::Phase::kBackward || op.sequence < 0) return std::nullopt;
    std::set<trace::Index> ops;
    std::set<trace::BufferId> contents;
    for (const trace::Index before : nodes_.at(op.sequence)) {
      if (before >= at) break;
      ops.insert(before);
      for_each_buffer(now_, now_.ops[before].inputs,
                      [&](trace::BufferId id) { contents.insert(id); });
    }
    std::set<std::string> paths;
    for (const trace::ScalarSite& site : now_.scalars) {
      const bool is_given =
          site.op == trace::kNone ? contents.contains(site.buffer) : ops.contains(site.op);
      if (!is_given) continue;
      for (const trace::Index leaf : leaves_in(now_.formulas[site.formula])) {
        paths.insert(now_.leaves[leaf].path);
      }
    }
    return paths;
  }

  /// Whether the place was bound before any was explained: then it is known what it follows.
  bool is_known(const trace::ScalarSite& site) const {
    return bindings_.is_bound(site) && !bound_here(site);
  }

  /// What `bind` has bound the place to.
  std::optional<trace::Formula> bound_here(const trace::ScalarSite& site) const {
    for (const auto& [place, formula] : bound_) {
      if (place == site) return formula;
    }
    return std::nullopt;
  }

  trace::Formula leaf_of(const Candidate& candidate) {
    if (candidate.kind == trace::LeafKind::kHostRead) {
      free_reads_.insert(static_cast<trace::Index>(candidate.known_at));
    }
    return trace::leaf(bindings_.leaf(candidate.kind, candidate.path));
  }

  /// A number that differs is a read that differs in the same way. One that does not differ stays
  /// what it was, and so does the read that gave it, which is checked.
  void infer_returned() {
    if (before_.numbers.size() != now_.numbers.size()) return;
    for (std::size_t i = 0; i < now_.numbers.size(); ++i) {
      trace::Number& number = now_.numbers[i];
      if (number.formula != trace::kNone) continue;
      const trace::Value& before = before_.numbers[i].value;
      if (before == number.value) {
        // where the program's numbers are followed, one that follows nothing is a constant
        if (only_ == nullptr) number.op = equal_read(number.value);
        continue;
      }
      std::optional<trace::Formula> bound;
      for (const Candidate& candidate : candidates_) {
        if (candidate.kind != trace::LeafKind::kHostRead) continue;
        if (candidate.before != before || candidate.now != number.value) continue;
        const trace::Formula leaf = leaf_of(candidate);
        if (!bound) {
          number.op = static_cast<trace::Index>(candidate.known_at);
          bound = leaf;
        } else {
          bindings_.require(trace::same_bits(*bound, leaf), true);
        }
      }
    }
  }

  /// A read that gave `value` in both recordings; kNone where there is none.
  trace::Index equal_read(const trace::Value& value) const {
    for (const trace::HostRead& read : now_.reads) {
      const auto& outputs = before_.ops[read.op].outputs;
      if (outputs.size() == 1 && outputs[0] == value && now_.ops[read.op].outputs[0] == value) {
        return read.op;
      }
    }
    return trace::kNone;
  }

  void settle_reads(Reads reads) {
    for (trace::HostRead& read : now_.reads) {
      const bool bound = free_reads_.contains(read.op);
      if (bound) read.use = trace::ReadUse::kFree;
      if (!bound && reads == Reads::kForLooking) read.use = trace::ReadUse::kLookedAt;
    }
  }

  const trace::Recording& before_;
  trace::Recording& now_;
  Bindings bindings_;
  const std::set<trace::Index>* only_ = nullptr;
  std::vector<Candidate> candidates_;
  std::vector<Derived> derived_;
  std::set<trace::Index> free_reads_;
  std::vector<std::pair<trace::ScalarSite, trace::Formula>> bound_;  ///< by `bind`
  std::map<std::int64_t, std::vector<trace::Index>> nodes_;          ///< ops, by Op::sequence
};

}  // namespace

void infer_bindings(const trace::Recording& before, trace::Recording& now, Reads reads,
                    const std::set<trace::Index>* only) {
  Explanation(before, now).explain(reads, only);
}

namespace {

/// Which kind of number stands at each path in the optimizers of a recording.
std::map<std::string, std::size_t> kinds_of(const trace::Recording& recording) {
  std::map<std::string, std::size_t> kinds;
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    trace::for_each_number(layout, [&kinds](const std::string& path, const trace::Value& value) {
      kinds.emplace(path, value.data.index());
    });
  }
  return kinds;
}

/// Whether numbers of optimizers that formulas of `known` read are of the same kinds in `now`.
bool has_numbers_of(const trace::Recording& known, const trace::Recording& now) {
  const auto before = kinds_of(known);
  const auto after = kinds_of(now);
  return std::ranges::all_of(known.leaves, [&](const trace::Leaf& leaf) {
    const auto found = before.find(leaf.path);
    if (found == before.end()) return true;
    const auto kept = after.find(leaf.path);
    return kept != after.end() && kept->second == found->second;
  });
}

}  // namespace

bool take_over_numbers(const trace::Recording& known, trace::Recording& now) {
  if (!has_numbers_of(known, now)) return false;
  // what the step has computed, without what it is held to
  std::vector<trace::Formula> computed;
  for (trace::Index i = 0; i < now.formulas.size(); ++i) {
    if (std::ranges::find(now.predicates, i, &trace::Predicate::formula) == now.predicates.end())
      computed.push_back(now.formulas[i]);
  }
  Bindings bindings(now);
  const auto renumbered = [&](trace::Index formula) {
    trace::Formula result = known.formulas[formula];
    for (trace::Index& position : trace::leaves_of(result)) {
      const trace::Leaf& leaf = known.leaves[position];
      position = bindings.leaf(leaf.kind, leaf.path);
    }
    return result;
  };
  for (std::size_t i = 0; i < std::min(known.reads.size(), now.reads.size()); ++i) {
    if (known.reads[i].op == now.reads[i].op) now.reads[i].use = known.reads[i].use;
  }
  for (const trace::ScalarSite& site : known.scalars) {
    if (bindings.is_bound(site)) continue;
    const trace::Formula formula = renumbered(site.formula);
    if (!bindings.gives_recorded(formula, site)) return false;
    // min(n, 3) where it was min(n, 5): while n is small they are equal
    const auto is_rival = [&](const trace::Formula& other) {
      return other != formula && leaves_in(other) == leaves_in(formula) &&
             bindings.gives_recorded(other, site);
    };
    const bool is_computed = std::ranges::find(computed, formula) != computed.end();
    if (!is_computed && std::ranges::any_of(computed, is_rival)) return false;
    bindings.bind(site, formula);
  }
  for (const trace::Predicate& predicate : known.predicates) {
    const trace::Formula formula = renumbered(predicate.formula);
    bindings.require(formula, bindings.recorded(formula) != 0);
  }
  for (std::size_t i = 0; i < std::min(known.numbers.size(), now.numbers.size()); ++i) {
    trace::Number& number = now.numbers[i];
    if (number.formula != trace::kNone) continue;
    number.op = known.numbers[i].op;
    if (number.op != trace::kNone && now.ops[number.op].outputs[0] != number.value) return false;
  }
  return true;
}

}  // namespace steptape::replayer
