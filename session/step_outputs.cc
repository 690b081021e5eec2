#include "session/step_outputs.h"

#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "live/contents.h"
#include "replayer/runtime/tensor_on.h"
#include "trace/numbers.h"

namespace steptape::session {
namespace {

bool is_bound(const replayer::Executor& executor, trace::BufferId buffer) {
  return executor.program().buffers[buffer].placement == replayer::Placement::kBound;
}

/// The tensors that gradients are at entry, by path.
class EntryGradients {
 public:
  EntryGradients(const trace::Recording& recording, const replayer::Executor& executor)
      : recording_(recording), executor_(executor) {
    for (const trace::Tracked& tracked : recording.tracked) {
      if (tracked.role == trace::Role::kGradient) tensors_.emplace(tracked.path, tracked.tensor);
    }
  }
  /// Whether anything in the plan needs the bytes of one.
  bool is_read(const std::string& path) const {
    const trace::TensorId tensor = tensor_of(path);
    if (tensor == trace::kNoTensor) return false;
    return executor_.program().buffers[recording_.tensors[tensor].buffer].last_use >= 0;
  }
  trace::TensorId tensor_of(const std::string& path) const {
    const auto found = tensors_.find(path);
    return found == tensors_.end() ? trace::kNoTensor : found->second;
  }

 private:
  const trace::Recording& recording_;
  const replayer::Executor& executor_;
  std::unordered_map<std::string, trace::TensorId> tensors_;
};

/// Stands for a graph that backward has consumed, in the tensor that is the result of its last
/// node.
class ConsumedGraph final : public torch::autograd::Node {
 public:
  explicit ConsumedGraph(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, torch::autograd::ERR_BACKWARD_TWICE);
  }

  std::string name_;
};

/// Nodes are owned by a std::shared_ptr, and in later versions of torch by a c10::intrusive_ptr.
template <typename Graph>
auto make_node(const std::string& name) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Graph>) {
    return c10::make_intrusive<Graph>(name);
  } else {
    return std::make_shared<Graph>(name);
  }
}

/// Each result has a node of its own: hooks that the caller registers on it stay there.
void give_graph(const at::Tensor& result, const std::string& node) {
  auto graph = make_node<ConsumedGraph>(node);
  const auto position = graph->add_input_metadata(result);
  torch::autograd::impl::set_gradient_edge(result, {std::move(graph), position});
}

std::uint32_t version_of(c10::TensorImpl& tensor) {
  return tensor.is_inference() ? 0 : tensor.version_counter().current_version();
}

void bump(c10::TensorImpl& tensor, std::uint32_t times) {
  if (tensor.is_inference()) return;
  for (std::uint32_t i = 0; i < times; ++i) tensor.bump_version();
}

/// Copies the bytes of one tensor's memory into that of another, of a device and of the same
/// layout, where nobody else holds either: whether it did.
bool moved_bytes(const at::Tensor& from, const at::Tensor& to) {
  const bool is_alike = from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
                        from.strides() == to.strides() &&
                        from.storage_offset() == to.storage_offset() &&
                        from.storage().nbytes() == to.storage().nbytes();
  const bool are_alone = from.storage().use_count() == 1 && to.storage().use_count() == 1;
  if (!from.is_cuda() || !to.is_cuda() || !is_alike || !are_alone) return false;
  live::copy_bytes(to.storage().mutable_data(), to.device(), from.storage().data(), from.device(),
                   from.storage().nbytes());
  return true;
}

}  // namespace

/// How far version counters move.
class StepOutputs::VersionMoves {
 public:
  VersionMoves(const trace::Recording& recording, const recorder::Recorded& recorded)
      : recording_(recording), recorded_(recorded) {
    for (std::size_t i = 0; i < recorded.moved_versions.size(); ++i) {
      if (recorded.moved_versions[i] != 0) ++movers_[buffer_of(recording.tracked[i].tensor)];
      positions_.emplace(recording.tracked[i].path, i);
    }
    for (std::size_t i = 0; i < recorded.moved_inputs.size(); ++i) {
      if (recorded.moved_inputs[i] != 0)
        ++movers_[buffer_of(tensor_in(recording_.inputs[i].value))];
    }
  }

  bool may_share() const {
    return std::ranges::any_of(movers_, [](const auto& on_buffer) { return on_buffer.second > 1; });
  }
  Move of_tracked(std::size_t i) const {
    return i < recorded_.moved_versions.size()
               ? move_of(recorded_.moved_versions[i], recording_.tracked[i].tensor)
               : Move{};
  }
  Move of_gradient(const std::string& path) const {
    const auto found = positions_.find(path);
    return found == positions_.end() ? Move{} : of_tracked(found->second);
  }
  Move of_input(std::size_t i) const {
    return i < recorded_.moved_inputs.size()
               ? move_of(recorded_.moved_inputs[i], tensor_in(recording_.inputs[i].value))
               : Move{};
  }

 private:
  trace::BufferId buffer_of(trace::TensorId id) const {
    return id == trace::kNoTensor ? trace::kNone : recording_.tensors[id].buffer;
  }
  Move move_of(std::uint32_t times, trace::TensorId id) const {
    return times == 0 ? Move{} : Move{times, movers_.at(buffer_of(id)) > 1};
  }

  const trace::Recording& recording_;
  const recorder::Recorded& recorded_;
  std::unordered_map<trace::BufferId, std::size_t> movers_;  ///< by memory
  std::unordered_map<std::string, std::size_t> positions_;   ///< in Recording::tracked
};

std::string StepOutputs::unreachable_result(const trace::Recording& recording,
                                            const replayer::Executor& executor,
                                            const guards::GuardSet& guards) {
  for (std::size_t i = 0; i < recording.results.size(); ++i) {
    const trace::TensorId id = recording.results[i];
    if (id == trace::kNoTensor) continue;
    const trace::BufferId buffer = recording.tensors[id].buffer;
    if (!is_bound(executor, buffer) || trace::input_on(recording, buffer) != trace::kNone) continue;
    if (guards.tracked().position_on(buffer) < 0) return "results[" + std::to_string(i) + "]";
  }
  return "";
}

StepOutputs::StepOutputs(const trace::Recording& recording, const replayer::Executor& executor,
                         const guards::GuardSet& guards, const recorder::Recorded& recorded)
    : recording_(recording), guards_(guards), identities_(recorded.identities) {
  const EntryGradients at_entry(recording, executor);
  const VersionMoves moves(recording, recorded);
  shares_versions_ = moves.may_share();
  for (std::size_t i = 0; i < recording.exit_gradients.size(); ++i) {
    const trace::ExitGradient& gradient = recording.exit_gradients[i];
    Gradient slot{i, owner_of(i), Gradient::Exit::kNone};
    slot.is_memory = gradient.is_memory;
    if (slot.is_memory) {
      slot.exit = Gradient::Exit::kNew;
      gradients_.push_back(slot);
      continue;
    }
    slot.is_read = at_entry.is_read(gradient.path());
    uses_gradients_at_entry_ |= slot.is_read;
    if (gradient.tensor != trace::kNoTensor) {
      const bool stays = is_bound(executor, recording.tensors[gradient.tensor].buffer);
      slot.entry = at_entry.tensor_of(gradient.path());
      const bool is_renewed =
          recorded.renewed_gradients.contains(gradient.path()) || slot.entry != gradient.tensor;
      slot.exit = !stays       ? Gradient::Exit::kNew
                  : is_renewed ? Gradient::Exit::kRenewed
                               : Gradient::Exit::kInPlace;
      if (stays) slot.move = moves.of_gradient(gradient.path());
      const auto node = recorded.gradient_nodes.find(gradient.path());
      if (node != recorded.gradient_nodes.end()) slot.node = node->second;
      const auto same = recorded.same_gradients.find(i);
      if (same != recorded.same_gradients.end()) slot.same = owner_of(same->second);
    }
    if (slot.exit != Gradient::Exit::kInPlace || slot.move.times != 0) gradients_.push_back(slot);
  }
  std::unordered_set<std::string> dropped;
  for (const Gradient& gradient : gradients_) {
    if (gradient.is_dropped()) {
      dropped.insert(recording.exit_gradients[gradient.at].path());
    }
  }
  for (std::size_t i = 0; i < recording.tracked.size(); ++i) {
    if (!dropped.contains(recording.tracked[i].path)) kept_.push_back(i);
  }
  for (std::size_t i = 0; i < recording.tracked.size(); ++i) {
    // a gradient is another tensor object in every step; its version counter is settled in place
    if (recording.tracked[i].role == trace::Role::kGradient) continue;
    if (const Move move = moves.of_tracked(i); move.times != 0) written_.push_back({i, move});
  }
  for (std::size_t i = 0; i < recording.inputs.size(); ++i) {
    if (const Move move = moves.of_input(i); move.times != 0) written_inputs_.push_back({i, move});
  }
  for (std::size_t i = 0; i < recording.inputs.size(); ++i) {
    if (recording.inputs[i].changes_requires_grad) toggled_inputs_.push_back(i);
  }
  for (std::size_t i = 0; i < recording.results.size(); ++i) {
    const trace::TensorId id = recording.results[i];
    Result result;
    result.tensor = id;
    if (identities_[i].of == recorder::Identity::Of::kGradient) {
      result.owner = owner_of(identities_[i].position);
    }
    if (id != trace::kNoTensor && is_bound(executor, recording.tensors[id].buffer)) {
      const trace::BufferId buffer = recording.tensors[id].buffer;
      if (const trace::Index input = trace::input_on(recording, buffer); input != trace::kNone) {
        result.source = Result::Source::kInput;
        result.input = input;
        result.base = std::get<trace::TensorRef>(recording.inputs[result.input].value.data).id;
      } else {
        const bool is_gradient = recording.buffers[buffer].role == trace::Role::kGradient;
        result.source = is_gradient ? Result::Source::kGradient : Result::Source::kTracked;
        const std::int64_t position = guards.tracked().position_on(buffer);
        result.tracked = static_cast<std::size_t>(position);
        if (position >= 0) result.base = recording.tracked[result.tracked].tensor;
        returns_gradients_ |= is_gradient;
      }
    }
    results_.push_back(result);
  }
}

StepOutputs::Owner StepOutputs::owner_of(std::size_t gradient) const {
  const std::string& path = recording_.exit_gradients[gradient].parameter;
  const trace::Index input = trace::find_input(recording_, path);
  if (input != trace::kNone) return {true, input};
  return {false, guards_.tracked().position_of(path)};
}

at::Tensor StepOutputs::renewed(const at::Tensor& gradient, const Gradient& slot) const {
  const trace::TensorId exit = recording_.exit_gradients[slot.at].tensor;
  const at::NoGradGuard no_grad;
  if (slot.entry == exit) return gradient.detach();
  const trace::Tensor& after = recording_.tensors[exit];
  return gradient.as_strided(
      after.sizes, after.strides,
      gradient.storage_offset() + after.offset - recording_.tensors[slot.entry].offset);
}

at::Tensor& StepOutputs::gradient_of(const Owner& owner,
                                     std::span<const live::Argument> arguments) const {
  return owner.is_argument ? arguments[owner.position].tensor.mutable_grad()
                           : guards_.tracked().alive(owner.position).mutable_grad();
}

void StepOutputs::drop_gradients() const {
  for (const Gradient& gradient : gradients_) {
    if (!gradient.is_dropped()) continue;
    guards_.tracked().alive(gradient.owner.position).mutable_grad().reset();
  }
}

std::vector<c10::Storage> StepOutputs::kept_memory() const {
  std::vector<c10::Storage> storages;
  for (const std::size_t position : kept_) {
    const at::Tensor tensor = guards_.tracked().tensor_at(position);
    if (tensor.defined() && tensor.has_storage()) storages.push_back(tensor.storage());
  }
  return storages;
}

std::vector<at::Tensor> StepOutputs::memory_at_entry() const {
  std::vector<at::Tensor> memory;
  for (const Gradient& slot : gradients_) {
    if (!slot.is_memory) continue;
    const at::Tensor tensor = guards_.tracked().tensor_at(slot.owner.position);
    memory.push_back(tensor.is_cuda() ? tensor.variable_data() : at::Tensor());
  }
  return memory;
}

void StepOutputs::return_memory(const std::vector<at::Tensor>& at_entry) const {
  auto before = at_entry.begin();
  for (const Gradient& slot : gradients_) {
    if (!slot.is_memory) continue;
    const at::Tensor tensor = guards_.tracked().tensor_at(slot.owner.position);
    const at::Tensor& was = *before++;
    if (was.defined() && tensor.defined() && moved_bytes(tensor, was)) tensor.set_data(was);
  }
}

std::vector<at::Tensor> StepOutputs::gradients_at_entry() const {
  std::vector<at::Tensor> gradients;
  if (!returns_gradients_) return gradients;
  for (const Result& result : results_) {
    gradients.push_back(result.source == Result::Source::kGradient
                            ? guards_.tracked().tensor_at(result.tracked)
                            : at::Tensor());
  }
  return gradients;
}

std::vector<std::uint32_t> StepOutputs::shared_versions(
    std::span<const live::Argument> arguments) const {
  std::vector<std::uint32_t> versions;
  if (!shares_versions_) return versions;
  const auto note = [&versions](c10::TensorImpl& tensor, const Move& move) {
    if (move.may_share) versions.push_back(version_of(tensor));
  };
  for (const Gradient& slot : gradients_) {
    if (slot.move.times != 0) {
      note(*gradient_of(slot.owner, arguments).unsafeGetTensorImpl(), slot.move);
    }
  }
  for (const auto& [tracked, move] : written_) note(guards_.tracked().alive(tracked), move);
  for (const auto& [input, move] : written_inputs_) {
    note(*arguments[input].tensor.unsafeGetTensorImpl(), move);
  }
  return versions;
}

std::vector<at::Tensor> StepOutputs::commit(
    replayer::Outcome outcome, std::span<const live::Argument> arguments,
    const std::vector<at::Tensor>& gradients_at_entry) const {
  const std::vector<std::uint32_t> versions = shared_versions(arguments);
  auto version = versions.begin();
  const auto move = [&version](c10::TensorImpl& tensor, const Move& by) {
    const std::uint32_t moved = by.may_share ? version_of(tensor) - *version++ : 0;
    if (moved < by.times) bump(tensor, by.times - moved);
  };
  for (const Gradient& slot : gradients_) {
    if (slot.is_memory) {
      const at::Tensor tensor = guards_.tracked().tensor(slot.owner.position);
      // graphs know memory by its address: nobody can tell that it stays
      if (!moved_bytes(outcome.gradients[slot.at], tensor))
        tensor.set_data(outcome.gradients[slot.at]);
      continue;
    }
    at::Tensor& gradient = gradient_of(slot.owner, arguments);
    switch (slot.exit) {
      case Gradient::Exit::kNone:
        if (gradient.defined()) gradient.reset();
        break;
      case Gradient::Exit::kNew:
        if (slot.same) {
          gradient = gradient_of(*slot.same, arguments);
          continue;
        }
        gradient = std::move(outcome.gradients[slot.at]);
        break;
      case Gradient::Exit::kRenewed:
        if (slot.move.times != 0) move(*gradient.unsafeGetTensorImpl(), slot.move);
        gradient = renewed(gradient, slot);
        break;
      case Gradient::Exit::kInPlace:
        move(*gradient.unsafeGetTensorImpl(), slot.move);
        continue;  // the very tensor, which requires grad if it did
    }
    if (slot.node && slot.node->empty()) gradient.set_requires_grad(true);
    if (slot.node && !slot.node->empty()) give_graph(gradient, *slot.node);
  }
  for (const std::size_t input : toggled_inputs_) {
    arguments[input].tensor.set_requires_grad(!recording_.inputs[input].requires_grad);
  }
  guards_.advance();
  for (const auto& [tracked, by] : written_) move(guards_.tracked().alive(tracked), by);
  for (const auto& [input, by] : written_inputs_) {
    move(*arguments[input].tensor.unsafeGetTensorImpl(), by);
  }
  std::map<std::size_t, at::Tensor> bases;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    outcome.results[i] = result_of(i, outcome.results, arguments, gradients_at_entry);
  }
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (identities_[i].view) make_view(i, outcome.results, arguments, bases);
  }
  return std::move(outcome.results);
}

at::Tensor StepOutputs::known_result(std::size_t index, const std::vector<at::Tensor>& results,
                                     std::span<const live::Argument> arguments,
                                     const std::vector<at::Tensor>& gradients_at_entry) const {
  const recorder::Identity& identity = identities_[index];
  switch (identity.of) {
    case recorder::Identity::Of::kArgument:
      return arguments[identity.position].tensor;
    case recorder::Identity::Of::kTracked:
      return guards_.tracked().tensor(identity.position);
    case recorder::Identity::Of::kResult:
      return results[identity.position];
    case recorder::Identity::Of::kGradient:
      return gradient_of(results_[index].owner, arguments);
    case recorder::Identity::Of::kEntryGradient:
      return gradients_at_entry[index];
    case recorder::Identity::Of::kNothing:
      break;
  }
  return {};
}

at::Tensor StepOutputs::result_of(std::size_t index, std::vector<at::Tensor>& results,
                                  std::span<const live::Argument> arguments,
                                  const std::vector<at::Tensor>& gradients_at_entry) const {
  const Result& result = results_[index];
  if (identities_[index].of != recorder::Identity::Of::kNothing) {
    return known_result(index, results, arguments, gradients_at_entry);
  }
  at::Tensor made;
  switch (result.source) {
    case Result::Source::kPlan:
      made = std::move(results[index]);
      bump(*made.unsafeGetTensorImpl(), identities_[index].version);
      break;
    case Result::Source::kInput:
      made = alias_of(arguments[result.input].tensor, result);
      break;
    case Result::Source::kTracked:
      made = alias_of(guards_.tracked().tensor(result.tracked), result);
      break;
    case Result::Source::kGradient:
      made = alias_of(gradients_at_entry[index], result);
      break;
  }
  if (const std::string& node = identities_[index].node; !node.empty()) give_graph(made, node);
  return made;
}

void StepOutputs::make_view(std::size_t index, const std::vector<at::Tensor>& results,
                            std::span<const live::Argument> arguments,
                            std::map<std::size_t, at::Tensor>& bases) const {
  const recorder::Identity::View& view = *identities_[index].view;
  const at::Tensor& result = results[index];
  at::Tensor base;
  switch (view.of) {
    case recorder::Identity::Of::kArgument:
      base = arguments[view.position].tensor;
      break;
    case recorder::Identity::Of::kTracked:
      base = guards_.tracked().tensor(view.position);
      break;
    case recorder::Identity::Of::kResult:
      base = results[view.position];
      break;
    default: {
      at::Tensor& made = bases[view.position];
      if (!made.defined())
        made = replayer::alias_of(result, recording_.tensors[results_[index].tensor],
                                  recording_.tensors[view.base]);
      base = made;
    }
  }
  if (base.requires_grad() || result.is_inference()) return;
  // the very tensor, which other results may be, too
  torch::autograd::as_view(base, result, true, true, nullptr, nullptr, view.creation);
}

at::Tensor StepOutputs::alias_of(const at::Tensor& base, const Result& result) const {
  at::Tensor alias =
      replayer::alias_of(base, recording_.tensors[result.base], recording_.tensors[result.tensor]);
  if (!alias.is_inference() && !base.is_inference()) {
    // as a view's: a write through one is a write to the other
    alias.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
  }
  return alias;
}

}  // namespace steptape::session
