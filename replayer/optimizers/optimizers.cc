#include "replayer/optimizers/optimizers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <string>

#include "live/operators.h"

namespace steptape::replayer {
namespace {

constexpr std::array kLowerings = {&kSgd, &kAdam, &kAdamW, &kRmsprop, &kAdagrad};

const Lowering* lowering_of(const std::string& type) {
  for (const Lowering* lowering : kLowerings) {
    if (type == lowering->type) return lowering;
  }
  return nullptr;
}

/// Buffers that an op writes; none for an operator that this process lacks, which is refused on its
/// own.
std::vector<trace::BufferId> written_by(const trace::Recording& recording, const trace::Op& op) {
  std::vector<trace::BufferId> buffers;
  const auto handle = live::find_operator(recording.operator_of(op));
  if (!handle) return buffers;
  const live::Effects& effects = live::effects_of(*handle);
  if (effects.is_inplace_view) return buffers;
  for (std::size_t a = 0; a < std::min(op.inputs.size(), effects.writes.size()); ++a) {
    if (!effects.writes[a]) continue;
    for_each_tensor(op.inputs[a], [&](trace::TensorId id) {
      if (id != trace::kNoTensor) buffers.push_back(recording.tensors[id].buffer);
    });
  }
  return buffers;
}

/// What a buffer is to an optimizer that a lowering knows.
struct Owner {
  std::size_t layout;
  std::size_t group;
  const std::string* parameter;
  bool is_state;
};
using Owners = std::multimap<trace::BufferId, Owner>;

Owners owners_of(const trace::Recording& recording) {
  Owners owners;
  std::map<std::string, trace::TensorId> tracked;
  for (const trace::Tracked& at : recording.tracked) tracked.emplace(at.path, at.tensor);
  const auto add = [&](trace::TensorId id, const Owner& owner) {
    if (id != trace::kNoTensor) owners.emplace(recording.tensors[id].buffer, owner);
  };
  for (std::size_t l = 0; l < recording.optimizers.size(); ++l) {
    const trace::OptimizerLayout& layout = recording.optimizers[l];
    if (lowering_of(layout.type) == nullptr) continue;
    std::map<std::string_view, Owner> by_parameter;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      for (const std::string& parameter : layout.groups[g].parameters) {
        const Owner owner{l, g, &parameter, false};
        by_parameter.emplace(parameter, owner);
        if (const auto at = tracked.find(parameter); at != tracked.end()) add(at->second, owner);
      }
    }
    for (const trace::OptimizerStateEntry& entry : layout.state) {
      const auto* tensor = std::get_if<trace::TensorRef>(&entry.value.data);
      const auto owner = by_parameter.find(entry.parameter);
      if (tensor == nullptr || owner == by_parameter.end()) continue;
      add(tensor->id, {l, owner->second.group, owner->second.parameter, true});
    }
  }
  return owners;
}

Refusal unsupported(const trace::Recording& recording, std::size_t op, std::string message) {
  Refusal refusal;
  refusal.code = RefusalCode::kOptimizerUnsupported;
  refusal.message = std::move(message);
  refusal.op = recording.operator_of(recording.ops[op]).full_name();
  refusal.op_index = static_cast<std::int64_t>(op);
  return refusal;
}

std::set<std::string> written_parameters(const trace::Recording& recording) {
  std::set<std::string> paths;
  for (const trace::Op& op : recording.ops) {
    for (const trace::BufferId id : written_by(recording, op)) {
      const trace::Buffer& buffer = recording.buffers[id];
      if (buffer.role == trace::Role::kParameter) paths.insert(buffer.path);
    }
  }
  return paths;
}

bool holds_any(const trace::OptimizerLayout& layout, const std::set<std::string>& paths) {
  return std::ranges::any_of(layout.groups, [&](const trace::ParameterGroup& group) {
    return std::ranges::any_of(group.parameters,
                               [&](const std::string& path) { return paths.contains(path); });
  });
}

class Binder {
 public:
  explicit Binder(trace::Recording& recording)
      : recording_(recording), bindings_(recording), owners_(owners_of(recording)) {}

  void bind() {
    const std::set<std::string> written = written_parameters(recording_);
    for (trace::OptimizerLayout& layout : recording_.optimizers) {
      // one that updates nothing here has no numbers to enter the step with
      layout.has_formulas = lowering_of(layout.type) != nullptr || !holds_any(layout, written);
    }
    for (std::size_t i = 0; i < recording_.ops.size(); ++i) {
      if (const std::size_t end = match_at(i); end > i) i = end - 1;
    }
    check_bits();
  }

  std::vector<MatchedUpdate> take_matched() { return std::move(matched_); }

 private:
  /// The end of the update that op `i` belongs to, or `i` when it belongs to none.
  std::size_t match_at(std::size_t i) {
    std::string problem;
    for (const trace::BufferId buffer : written_by(recording_, recording_.ops[i])) {
      const auto [first, last] = owners_.equal_range(buffer);
      for (auto at = first; at != last; ++at) {
        if (const std::size_t end = match(at->second, i, problem); end > i) return end;
        if (!at->second.is_state && !reads_gradient(i, *at->second.parameter)) problem.clear();
      }
    }
    if (!problem.empty()) {
      recording_.refusals.push_back(unsupported(recording_, i, std::move(problem)));
    }
    return i;
  }

  /// An update starts with the op that writes first, or with the one before it, which adds the
  /// weight decay to the gradient.
  std::size_t match(const Owner& owner, std::size_t i, std::string& problem) {
    const trace::OptimizerLayout& layout = recording_.optimizers[owner.layout];
    const Lowering& lowering = *lowering_of(layout.type);
    std::size_t farthest = 0;
    std::int64_t& earlier = updates_[{owner.layout, *owner.parameter}];
    for (const std::size_t back : {0U, 1U}) {
      if (i < back + end_) continue;
      Update update(recording_, bindings_, layout, owner.group, *owner.parameter, i - back,
                    earlier);
      lowering.match(update);
      if (update.matched() && update.end() > i) {
        update.commit();
        if (lowering.counts_steps) {
          bindings_.advance(layout.path + ".state[" + *owner.parameter + "].step");
        }
        matched_.push_back({owner.layout, owner.group, *owner.parameter, i - back, update.end(),
                            update.gradient_tensor(), earlier});
        ++earlier;
        end_ = update.end();
        return end_;
      }
      if (problem.empty() || update.end() > farthest) {
        problem = "`" + layout.path + "`: " + update.problem();
        farthest = update.end();
      }
    }
    return i;
  }

  bool reads_gradient(std::size_t i, const std::string& parameter) const {
    trace::TensorId gradient = trace::kNoTensor;
    for (const trace::ExitGradient& exit : recording_.exit_gradients) {
      if (exit.parameter == parameter) gradient = exit.tensor;
    }
    bool reads = false;
    for (const trace::Value& value : recording_.ops[i].inputs) {
      for_each_tensor(value, [&](trace::TensorId id) {
        if (id == trace::kNoTensor || gradient == trace::kNoTensor) return;
        reads |= recording_.tensors[id].buffer == recording_.tensors[gradient].buffer;
      });
    }
    return reads;
  }

  /// A formula must give the very bits that the eager step used.
  void check_bits() {
    const std::vector<double> leaves = recorded_leaves(recording_);
    for (const trace::ScalarSite& site : recording_.scalars) {
      const trace::Value found = recorded_number(recording_, site);
      const double value = trace::evaluate(recording_.formulas[site.formula], leaves);
      if (std::bit_cast<std::uint64_t>(trace::number_of(found)) ==
          std::bit_cast<std::uint64_t>(value)) {
        continue;
      }
      recording_.refusals.push_back(unsupported(
          recording_, site.op,
          "argument " + std::to_string(site.argument) + " is not what " +
              text_of(recording_.formulas[site.formula], recording_.leaves) + " gives"));
      return;
    }
  }

  trace::Recording& recording_;
  Bindings bindings_;
  Owners owners_;
  std::map<std::pair<std::size_t, std::string>, std::int64_t> updates_;
  std::size_t end_ = 0;  ///< of the update matched last
  std::vector<MatchedUpdate> matched_;
};

void refuse_unowned_updates(const trace::Recording& recording, std::set<std::string> written,
                            std::vector<Refusal>& refusals) {
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    for (const trace::ParameterGroup& group : layout.groups) {
      for (const std::string& parameter : group.parameters) written.erase(parameter);
    }
  }
  for (const trace::ExitGradient& gradient : recording.exit_gradients) {
    if (gradient.tensor == trace::kNoTensor || !written.contains(gradient.parameter)) continue;
    Refusal refusal;
    refusal.code = RefusalCode::kUntrackedWrite;
    refusal.message =
        "parameter " + gradient.parameter +
        " has a gradient and is updated, and no tracked optimizer holds it: the numbers in "
        "its update would be frozen";
    refusals.push_back(std::move(refusal));
    return;
  }
}

}  // namespace

std::span<const Lowering* const> lowerings() noexcept { return kLowerings; }

void bind_optimizers(trace::Recording& recording) { Binder(recording).bind(); }

std::vector<MatchedUpdate> updates_of(trace::Recording recording) {
  Binder binder(recording);
  binder.bind();
  return binder.take_matched();
}

void refuse_optimizers(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  const std::set<std::string> written = written_parameters(recording);
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    if (layout.has_formulas || !holds_any(layout, written)) continue;
    Refusal refusal;
    refusal.code = RefusalCode::kOptimizerUnsupported;
    refusal.message = "`" + layout.path + "` is a " + layout.type +
                      ", and how it computes the numbers of its ops is not known";
    refusals.push_back(std::move(refusal));
  }
  refuse_unowned_updates(recording, written, refusals);
}

}  // namespace steptape::replayer
