#include "replayer/planner/numbers/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "trace/compare/compare.h"
#include "trace/windows.h"

namespace steptape::replayer {
namespace {

/// Of one memory, which of its tensors are windows' or lie in them.
class Views {
 public:
  Views(const trace::Recording& recording, trace::BufferId buffer,
        const std::set<trace::Index>& ops)
      : recording_(recording), buffer_(buffer), ops_(ops) {
    for (const trace::Input& input : recording.inputs) put_aside(tensor_in(input.value));
    for (const trace::Tracked& tracked : recording.tracked) put_aside(tracked.tensor);
    is_good_ = !owners_.empty();  // else it is of nobody that a run asks for it
    for (trace::Index op = 0; op < recording.ops.size(); ++op) look_at(op);
    for (const trace::TensorId id : recording.results) let_go(id);
    for (const trace::ExitGradient& gradient : recording.exit_gradients) let_go(gradient.tensor);
  }

  /// Whether each window can be one.
  bool is_good() const { return is_good_ && (!is_written_ || used_.size() == 1); }

  struct Found {
    trace::Index op;  ///< the first that gives it
    trace::TensorId tensor;
    std::vector<trace::TensorId> on_it = {};  ///< it, and those that lie in it
  };
  std::vector<Found> windows() const {
    std::vector<Found> found = windows_;
    for (const auto& [tensor, owner] : owners_) {
      if (owner != kWhole) found[owner - 1].on_it.push_back(tensor);
    }
    return found;
  }

 private:
  /// Of tensors: the memory as the step finds it, or a window, counted from 1.
  using Owner = std::size_t;
  static constexpr Owner kWhole = 0;

  bool is_here(trace::TensorId id) const {
    return id != trace::kNoTensor && recording_.tensors[id].buffer == buffer_;
  }
  void put_aside(trace::TensorId id) {
    if (is_here(id)) owners_.emplace(id, kWhole);
  }
  /// Somebody has it after the step.
  void let_go(trace::TensorId id) {
    const auto owner = owners_.find(id);
    is_good_ &= owner == owners_.end() || owner->second == kWhole;
  }

  void look_at(trace::Index index) {
    const trace::Op& op = recording_.ops[index];
    const live::Effects& effects =
        live::effects_of(*live::find_operator(recording_.operator_of(op)));
    std::set<Owner> given;
    for (std::size_t argument = 0; argument < op.inputs.size(); ++argument) {
      trace::for_each_tensor(op.inputs[argument], [&](trace::TensorId id) {
        if (!is_here(id)) return;
        const Owner owner = owners_.emplace(id, kWhole).first->second;
        given.insert(owner);
        is_written_ |= argument < effects.writes.size() && effects.writes[argument];
      });
    }
    for (const trace::TensorId id : op.unannotated_writes) is_written_ |= is_here(id);
    if (given.empty()) return;
    // by an offset from the start of all memory
    const bool is_absolute = recording_.operator_of(op).name.starts_with("aten::as_strided");
    is_good_ &= !effects.is_inplace_view && !(is_absolute && given != std::set{kWhole});
    if (!effects.is_view) used_.insert(given.begin(), given.end());
    if (ops_.contains(index)) return add_window(index, op, *given.begin());
    trace::for_each_tensor(op.outputs, [&](trace::TensorId id) {
      if (is_here(id)) give(id, *given.begin(), given.size() == 1);
    });
  }

  /// An op gives a tensor: of which of those that it is given, is known if that is one.
  void give(trace::TensorId id, Owner owner, bool is_known) {
    const auto [known, is_new] = owners_.emplace(id, owner);
    is_good_ &= is_known && known->second == owner;
  }

  void add_window(trace::Index index, const trace::Op& op, Owner base) {
    const trace::TensorId given = tensor_in(op.outputs[0]), from = tensor_in(op.inputs[0]);
    const trace::Tensor& tensor = recording_.tensors[given];
    is_good_ &= is_here(given) && given != from && tensor.numel() > 0 &&
                trace::can_give(recording_, op, recording_.tensors[from], tensor);
    const auto same = std::ranges::find_if(
        windows_, [&](const Found& window) { return is_same(window.op, index); });
    if (same != windows_.end()) {
      const auto owner = static_cast<Owner>(same - windows_.begin()) + 1;
      return give(given, owner, bases_[owner - 1] == base);
    }
    windows_.push_back({index, given});
    bases_.push_back(base);
    is_good_ &= owners_.emplace(given, windows_.size()).second;
  }

  /// Whether two ops give one window, whatever their numbers are.
  bool is_same(trace::Index a, trace::Index b) const {
    const trace::Op &one = recording_.ops[a], &other = recording_.ops[b];
    if (one.op != other.op || one.inputs.size() != other.inputs.size()) return false;
    for (trace::Index argument = 0; argument < one.inputs.size(); ++argument) {
      const trace::Index formula = formula_of(a, argument);
      if (formula != formula_of(b, argument)) return false;
      if (formula == trace::kNone && one.inputs[argument] != other.inputs[argument]) return false;
    }
    return true;
  }
  trace::Index formula_of(trace::Index op, trace::Index argument) const {
    for (const trace::ScalarSite& site : recording_.scalars) {
      if (site.op == op && site.argument == argument) return site.formula;
    }
    return trace::kNone;
  }

  const trace::Recording& recording_;
  trace::BufferId buffer_;
  const std::set<trace::Index>& ops_;
  std::map<trace::TensorId, Owner> owners_;
  std::vector<Found> windows_;
  std::vector<Owner> bases_;  ///< of each
  std::set<Owner> used_;      ///< by ops that do more than to look elsewhere
  bool is_good_ = true;
  bool is_written_ = false;
};

/// "host.data[host.i:host.i + 4]"
std::string name_of(const trace::Recording& recording, const std::string& base, trace::Index op) {
  std::string where;
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op != op) continue;
    where += (where.empty() ? "" : ":") +
             trace::text_of(recording.formulas[site.formula], recording.leaves);
  }
  return fmt::format("{}[{}]", base, where);
}

void add(trace::Recording& recording, trace::BufferId base, const Views::Found& found) {
  const trace::Tensor first = recording.tensors[found.tensor];
  const auto [begin, end] = first.byte_range();
  const auto id = static_cast<trace::BufferId>(recording.buffers.size());
  trace::Buffer& buffer = recording.buffers.emplace_back();
  buffer.bytes = end - begin;
  buffer.device = recording.buffers[base].device;
  buffer.address_mod_64 =
      static_cast<std::uint8_t>((recording.buffers[base].address_mod_64 + begin) % 64);
  buffer.role = trace::Role::kInput;
  buffer.path = name_of(recording, recording.buffers[base].path, found.op);
  for (const trace::TensorId on_it : found.on_it) {
    recording.tensors[on_it].buffer = id;
    recording.tensors[on_it].offset -= first.offset;
  }
  recording.windows.push_back({id, found.op});
}

}  // namespace

trace::Recording with_windows_of(const trace::Recording& plan, const trace::Recording& recording) {
  const bool may_be_alike = recording.windows.empty() &&
                            plan.tensors.size() == recording.tensors.size() &&
                            plan.buffers.size() == recording.buffers.size() + plan.windows.size();
  if (!may_be_alike) return recording;
  trace::Recording made = recording;
  made.windows = plan.windows;
  made.buffers.insert(made.buffers.end(),
                      plan.buffers.begin() + static_cast<std::ptrdiff_t>(recording.buffers.size()),
                      plan.buffers.end());
  if (!trace::same_op_stream(plan, made)) return recording;
  for (const trace::Window& window : plan.windows) {
    const std::int64_t first =
        recording.tensors[tensor_in(recording.ops[window.op].outputs[0])].offset;
    for (trace::TensorId id = 0; id < made.tensors.size(); ++id) {
      if (plan.tensors[id].buffer != window.buffer) continue;
      made.tensors[id].buffer = window.buffer;
      made.tensors[id].offset -= first;
    }
  }
  return made;
}

std::set<trace::Index> make_windows(trace::Recording& recording, const std::set<trace::Index>& ops,
                                    const std::set<trace::BufferId>& kept) {
  std::set<trace::Index> none;
  if (ops.empty()) return none;
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  std::map<trace::BufferId, std::set<trace::Index>> by_buffer;
  for (const trace::Index op : ops) {
    const trace::TensorId base = tensor_in(recording.ops[op].inputs[0]);
    if (base == trace::kNoTensor) {
      none.insert(op);
    } else {
      by_buffer[recording.tensors[base].buffer].insert(op);
    }
  }
  for (const auto& [buffer, of_buffer] : by_buffer) {
    const bool is_found = !kept.contains(buffer) && !lifetimes[buffer].made_inside &&
                          !recording.buffers[buffer].path.empty() &&
                          recording.buffers[buffer].role != trace::Role::kGradient;
    if (is_found) {
      const Views memory(recording, buffer, of_buffer);
      if (memory.is_good()) {
        for (const Views::Found& window : memory.windows()) add(recording, buffer, window);
        continue;
      }
    }
    none.insert(of_buffer.begin(), of_buffer.end());
  }
  std::ranges::sort(recording.windows, {}, &trace::Window::op);
  return none;
}

}  // namespace steptape::replayer
