#include "replayer/numbers/explain.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "replayer/numbers/bindings.h"
#include "trace/element.h"

namespace steptape::replayer {
namespace {

bool same_number(const trace::Value& a, const trace::Value& b) {
  return trace::is_number(a) && trace::is_number(b) &&
         std::bit_cast<std::uint64_t>(trace::number_of(a)) ==
             std::bit_cast<std::uint64_t>(trace::number_of(b));
}

/// A number that may explain others: it differs between the two recordings.
struct Candidate {
  trace::LeafKind kind;
  std::string path;
  double before, now;
  std::int64_t known_at = -1;  ///< the op that gave it; -1: known when the step begins
};

class Explanation {
 public:
  Explanation(const trace::Recording& before, trace::Recording& now)
      : before_(before), now_(now), bindings_(now) {}

  void explain(Reads reads) {
    if (before_.ops.size() != now_.ops.size() || before_.buffers.size() != now_.buffers.size() ||
        before_.inputs.size() != now_.inputs.size()) {
      return;
    }
    collect();
    explain_arguments();
    explain_contents();
    explain_returned();
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
      offer(trace::LeafKind::kHostRead, "ops[" + std::to_string(read.op) + "]", outputs[0],
            now_.ops[read.op].outputs[0], read.op);
    }
  }

  void offer(trace::LeafKind kind, const std::string& path, const trace::Value& before,
             const trace::Value& now, std::int64_t known_at = -1) {
    if (!trace::is_number(before) || !trace::is_number(now) || same_number(before, now)) return;
    candidates_.push_back({kind, path, trace::number_of(before), trace::number_of(now), known_at});
  }

  void explain_arguments() {
    for (trace::Index op = 0; op < now_.ops.size(); ++op) {
      const auto& before = before_.ops[op].inputs;
      const auto& now = now_.ops[op].inputs;
      if (before.size() != now.size()) return;
      for (trace::Index k = 0; k < now.size(); ++k) explain_argument(op, k, before[k], now[k]);
    }
  }

  void explain_argument(trace::Index op, trace::Index argument, const trace::Value& before,
                        const trace::Value& now) {
    const auto* a = std::get_if<trace::List>(&before.data);
    const auto* b = std::get_if<trace::List>(&now.data);
    if (a == nullptr || b == nullptr) {
      explain_site({op, argument, trace::kNone, trace::kNone, trace::kNone}, before, now, op);
      return;
    }
    for (trace::Index i = 0; i < std::min(a->size(), b->size()); ++i) {
      explain_site({op, argument, i, trace::kNone, trace::kNone}, (*a)[i], (*b)[i], op);
    }
  }

  void explain_site(const trace::ScalarSite& site, const trace::Value& before,
                    const trace::Value& now, std::int64_t used_at) {
    if (!trace::is_number(before) || !trace::is_number(now) || before == now) return;
    if (bindings_.is_bound(site)) return;
    bind(site, used_at, [&](double x, double y) {
      return same_number({trace::Real{x}}, {trace::Real{trace::number_of(before)}}) &&
             same_number({trace::Real{y}}, {trace::Real{trace::number_of(now)}});
    });
  }

  /// The elements of tensors that the host made: wrapped numbers, `torch::tensor(x)`.
  void explain_contents() {
    std::vector<std::int64_t> first_use(now_.buffers.size(), -1);
    for (std::size_t op = now_.ops.size(); op-- > 0;) {
      for (const trace::Value& value : now_.ops[op].inputs) {
        for_each_tensor(value, [&](trace::TensorId id) {
          if (id != trace::kNoTensor) {
            first_use[now_.tensors[id].buffer] = static_cast<std::int64_t>(op);
          }
        });
      }
    }
    for (const trace::Tensor& tensor : now_.tensors) {
      const trace::Buffer& before = before_.buffers[tensor.buffer];
      const trace::Buffer& now = now_.buffers[tensor.buffer];
      const bool host_made = now.role == trace::Role::kConstant && now.path.empty();
      if (!host_made || !before.content || !now.content || *before.content == *now.content)
        continue;
      if (now.bytes != trace::bytes_of(tensor.dtype) || before.bytes != now.bytes) continue;
      const trace::ScalarSite site{trace::kNone, trace::kNone, trace::kNone, tensor.buffer,
                                   trace::kNone};
      if (bindings_.is_bound(site)) continue;
      bind(site, first_use[tensor.buffer], [&](double x, double y) {
        return holds(x, tensor.dtype, *before.content) && holds(y, tensor.dtype, *now.content);
      });
    }
  }

  static bool holds(double number, trace::DType dtype, const std::vector<std::byte>& content) {
    std::vector<std::byte> bytes(content.size());
    return trace::put_element(number, dtype, bytes.data()) && bytes == content;
  }

  template <typename Fits>
  void bind(const trace::ScalarSite& site, std::int64_t used_at, Fits&& fits) {
    std::optional<trace::Formula> bound;
    for (const Candidate& candidate : candidates_) {
      if (candidate.known_at >= used_at && candidate.known_at >= 0) continue;
      if (!fits(candidate.before, candidate.now)) continue;
      const trace::Formula leaf = trace::leaf(bindings_.leaf(candidate.kind, candidate.path));
      if (!bound) {
        bindings_.bind(site, leaf);
        bound = leaf;
      } else if (candidate.known_at < 0) {
        // which of the two it follows cannot be told while they are equal
        bindings_.require(*bound - leaf, false);
      }
      if (candidate.kind == trace::LeafKind::kHostRead) {
        bound_reads_.push_back(static_cast<trace::Index>(candidate.known_at));
      }
    }
  }

  void explain_returned() {
    if (before_.numbers.size() != now_.numbers.size()) return;
    for (std::size_t i = 0; i < now_.numbers.size(); ++i) {
      trace::Number& number = now_.numbers[i];
      for (const trace::HostRead& read : now_.reads) {
        if (!same_number(number.value, now_.ops[read.op].outputs[0])) continue;
        if (before_.ops[read.op].outputs.size() != 1 ||
            !same_number(before_.numbers[i].value, before_.ops[read.op].outputs[0])) {
          continue;
        }
        number.op = read.op;
        bound_reads_.push_back(read.op);
        break;
      }
    }
  }

  void settle_reads(Reads reads) {
    for (trace::HostRead& read : now_.reads) {
      const bool bound = std::ranges::find(bound_reads_, read.op) != bound_reads_.end();
      if (bound || reads == Reads::kForLooking) read.use = trace::ReadUse::kFree;
    }
  }

  const trace::Recording& before_;
  trace::Recording& now_;
  Bindings bindings_;
  std::vector<Candidate> candidates_;
  std::vector<trace::Index> bound_reads_;
};

}  // namespace

void explain_numbers(const trace::Recording& before, trace::Recording& now, Reads reads) {
  Explanation(before, now).explain(reads);
}

void take_over_numbers(const trace::Recording& known, trace::Recording& now) {
  Bindings bindings(now);
  const auto renumbered = [&](trace::Index formula) {
    trace::Formula result = known.formulas[formula];
    for (trace::Node& node : result.nodes) {
      if (node.operation != trace::Operation::kLeaf) continue;
      const trace::Leaf& leaf = known.leaves[node.leaf];
      node.leaf = bindings.leaf(leaf.kind, leaf.path);
    }
    return result;
  };
  for (const trace::ScalarSite& site : known.scalars) {
    if (!bindings.is_bound(site)) bindings.bind(site, renumbered(site.formula));
  }
  for (const trace::Predicate& predicate : known.predicates) {
    const trace::Formula formula = renumbered(predicate.formula);
    bindings.require(formula, bindings.recorded(formula) != 0);
  }
  for (std::size_t i = 0; i < std::min(known.reads.size(), now.reads.size()); ++i) {
    if (known.reads[i].op == now.reads[i].op) now.reads[i].use = known.reads[i].use;
  }
  for (std::size_t i = 0; i < std::min(known.numbers.size(), now.numbers.size()); ++i) {
    now.numbers[i].op = known.numbers[i].op;
  }
}

}  // namespace steptape::replayer
