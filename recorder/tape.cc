#include "recorder/tape.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <limits>

#include "live/generator_state.h"
#include "live/op_digest.h"
#include "live/operators.h"
#include "live/tensors.h"
#include "live/values.h"
#include "recorder/context/modules.h"
#include "recorder/number_sites.h"
#include "trace/windows.h"

namespace steptape::recorder {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using Clock = std::chrono::steady_clock;

/// An operator that wrote no more than its schema says in so many calls is taken at its word after
/// them: should it write later all the same, the next op that reads, or the end of the step,
/// notices.
constexpr std::uint32_t kMeasuredCalls = 4;

bool is_opaque(const trace::Value& value) {
  return std::holds_alternative<trace::Opaque>(value.data);
}

/// Whether autograd may have made a node for an op that is given these.
bool may_have_node(c10::ArrayRef<c10::IValue> arguments) {
  if (!at::GradMode::is_enabled()) return false;
  bool any = false;
  for (const c10::IValue& argument : arguments) {
    live::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      any |= tensor.defined() && tensor.requires_grad();
    });
  }
  return any;
}

/// The largest number stands for more.
std::uint32_t nanoseconds(Clock::duration time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ns, 0, kMost));
}

}  // namespace

Tape::Tape(const live::Objects& objects, const Detail& detail)
    : detail_(detail),
      exchanges_(detail.exchanges == nullptr ? std::make_shared<live::Exchanges>()
                                             : detail.exchanges),
      state_(objects),
      next_sequence_(nodes_.first()),
      name_tensor_([this](const at::Tensor& tensor) {
        const trace::TensorId id = state_.tensor_table.see(tensor, origin_, site_);
        if (id != trace::kNoTensor) {
          named_.push_back({id, argument_});
          note_foreign(id, tensor);
        }
        return id;
      }),
      name_generator_(
          [this](const at::Generator& generator) { return state_.generators.path_of(generator); }) {
  // most steps need no more, and growth moves everything that was recorded
  constexpr std::size_t kTypicalOps = 256;
  state_.recording.ops.reserve(kTypicalOps);
  state_.recording.tensors.reserve(kTypicalOps);
  state_.recording.buffers.reserve(kTypicalOps);
}

void Tape::on_op(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                 const std::function<void()>& run) {
  if (is_owner() && state_.hints.leaves_out()) return run();
  if (exchanges_->is_of_backend()) return run();
  Running running;
  // before the lock, since it may wait for one of the program's own
  if (is_owner() && (torch::autograd::get_current_node() == nullptr || is_in_told_call())) {
    running.place = FrontendHints::place();
  }
  const std::size_t count = op.schema().arguments().size();
  exchanges_->wait_for(torch::jit::last(stack, count));
  guarded([&] { before(op, torch::jit::last(stack, count), running); });
  const auto start = detail_.timings ? Clock::now() : Clock::time_point();
  try {
    is_exchange(running) ? exchange(op, stack, run, running.index) : run();
  } catch (...) {
    guarded([&] { threw(running); });
    throw;
  }
  if (detail_.timings) running.time = Clock::now() - start;
  guarded([&] { after(torch::jit::last(stack, op.schema().returns().size()), running); });
}

void Tape::exchange(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                    const std::function<void()>& run, trace::Index index) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  const auto arrive = [tape = shared_from_this(), index,
                       left = live::written_tensors(op, arguments)] {
    tape->guarded([&] { tape->arrived(index, left); });
  };
  exchanges_->run(op, stack, run, arrive);
}

/// What a collective has written is there.
void Tape::arrived(trace::Index op, const std::vector<at::Tensor>& left) {
  for (const at::Tensor& tensor : left) {
    const trace::TensorId id = state_.tensor_table.recognise(tensor);
    if (id != trace::kNoTensor) note_content(state_.tensor_table.buffer_of(id));
  }
  if (detail_.depth >= Depth::kDigests) state_.recording.op_digests[op] = live::op_digest({}, left);
}

void Tape::close() {
  exchanges_->abandon();
  std::lock_guard lock(mutex_);
  is_closed_ = true;
}

void Tape::failed(const char* what) noexcept {
  is_closed_ = true;
  state_.refusals.add(RefusalCode::kRecordingFailed, site_,
                      c10::str("the recorder stopped: ", what));
}

/// cuDNN's RNNs take all weights as one tensor: an empty one that is set to the storage of the
/// first (try_get_weight_buf in ATen/native/cudnn/RNN.cpp). That is a view of a known storage, and
/// is recorded as one: these are the arguments of `aten::as_strided` for it. Nothing for other ops.
std::optional<std::vector<c10::IValue>> Tape::as_view(const c10::OperatorHandle& op,
                                                      Arguments arguments) {
  static const c10::OperatorName set("aten::set_", "source_Storage");
  if (op.operator_name() != set) return std::nullopt;
  const at::Tensor& self = arguments[0].toTensor();
  const c10::Storage source = arguments[1].toStorage();
  BufferTable& buffers = state_.tensor_table.buffers;
  const auto own = buffers.find(self.storage().unsafeGetStorageImpl());
  const bool is_new = own && buffers.live(*own).origin == Origin::kMade;
  if (!is_new || self.numel() != 0 || self.requires_grad()) return std::nullopt;
  if (!buffers.find(source.unsafeGetStorageImpl())) return std::nullopt;
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.itemsize());
  const std::vector<std::int64_t> sizes = {elements}, strides = {1};
  const auto key = source.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  const at::Tensor base = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(source), c10::DispatchKeySet(key), self.dtype());
  base.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return std::vector<c10::IValue>{base, sizes, strides, std::int64_t{0}};
}

void Tape::before(const c10::OperatorHandle& op, Arguments arguments, Running& running) {
  if (const auto view = as_view(op, arguments)) {
    static const c10::OperatorHandle as_strided =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::as_strided", "");
    return before(as_strided, *view, running);
  }
  KnownOperator& known = state_.operators.get(op);
  if (is_owner() && state_.hints.is_announcing()) {
    state_.hints.note_op(known.name, may_have_node(arguments));
  }
  if (known.is_ignored) return;
  running.is_measured = known.calls++ < kMeasuredCalls;
  running.index = static_cast<trace::Index>(state_.recording.ops.size());
  running.op.op = known.id;
  running.op.scope = scope_index(running.place);
  site_ = {&known.name, running.index, running.op.scope};
  if (known.training >= 0 && arguments[known.training].isBool()) {
    running.is_training = arguments[known.training].toBool();
  }
  check_modes();
  const auto first_new = static_cast<trace::BufferId>(state_.tensor_table.buffers.size());
  if (known.effects->is_collective()) running.filled = live::filled_arguments(op, arguments);
  name_arguments(arguments, running);
  running.known = &known;
  if (is_first_unread(op, arguments, running)) {
    running.filled.assign(arguments.size(), false);
    running.filled[0] = true;
  }
  if (is_owner() && !state_.hints.announced().empty()) {
    take_announced(state_.hints, state_.recording, running.op, running.index, first_new,
                   arguments_that_may_follow(op, arguments, running));
  }
  if (!nodes_.has_begun()) nodes_.begin(may_have_node(arguments));
  name_context(running);
  check_operator(running);
  check_stream(device_of(arguments, running));
  check_draw(arguments, running);
  check_reads(running);
  // The place is taken now, so that ops stand in the order in which they started; what stands in it
  // comes when the op ends.
  state_.recording.ops.emplace_back().op = running.op.op;
  if (detail_.depth >= Depth::kDigests) {
    state_.recording.op_digests.emplace_back();
    running.written = live::written_tensors(op, arguments);
  }
  if (detail_.timings) state_.recording.op_ns.push_back(0);
}

/// As of its schema; and of a view of memory that the step finds, where that begins, unless
/// backward is to know it, too.
std::vector<bool> Tape::arguments_that_may_follow(const c10::OperatorHandle& op,
                                                  Arguments arguments,
                                                  const Running& running) const {
  std::vector<bool> may_follow = live::arguments_that_may_follow(op);
  const trace::Operator& name = state_.recording.operators[running.op.op];
  if (!trace::gives_windows(name) || running.arguments.empty()) return may_follow;
  const trace::BufferId base = state_.tensor_table.buffer_of(running.arguments.front().id);
  const Origin origin = state_.tensor_table.buffers.live(base).origin;
  const bool is_found = origin == Origin::kInput || origin == Origin::kTracked;
  if (!is_found || arguments[0].toTensor().requires_grad()) return may_follow;
  for (trace::Index i = 0; i < may_follow.size(); ++i) may_follow[i] = trace::says_where(name, i);
  return may_follow;
}

void Tape::after(Arguments outputs, Running& running) {
  if (running.known == nullptr) return;
  site_ = {&running.known->name, running.index, running.op.scope};
  name_outputs(outputs, running);
  compare_measured(running);
  note_writes(running);
  note_read(running);
  note_each_index(running);
  if (running.generator) state_.generators.after_draw(*running.generator, running.index);
  if (is_exchange(running)) note_exchange(running);
  if (detail_.depth >= Depth::kDigests && !is_exchange(running)) {
    state_.recording.op_digests[running.index] = live::op_digest(outputs, running.written);
  }
  if (detail_.timings) state_.recording.op_ns[running.index] = nanoseconds(running.time);
  state_.recording.ops[running.index] = std::move(running.op);
}

void Tape::threw(Running& running) {
  if (running.known == nullptr) return;
  site_ = {&running.known->name, running.index, running.op.scope};
  // Only a step that catches it gets as far as being judged by this.
  state_.refusals.add(RefusalCode::kUnreplayableOp, site_,
                      "an op threw and the step caught the exception");
  state_.recording.ops[running.index] = std::move(running.op);
}

void Tape::name_arguments(Arguments arguments, Running& running) {
  origin_ = Origin::kForeign;
  named_.clear();
  running.op.inputs.reserve(arguments.size());
  for (argument_ = 0; argument_ < arguments.size(); ++argument_) {
    running.op.inputs.push_back(
        live::value_of(arguments[argument_], name_tensor_, name_generator_));
  }
  running.arguments = named_;
}

void Tape::note_foreign(trace::TensorId id, const at::Tensor& tensor) {
  if (origin_ != Origin::kForeign) return;
  if (is_owner() && state_.hints.is_state(tensor)) {
    state_.refusals.add(
        RefusalCode::kHostTensorVaries, site_,
        "an op takes the state of a random generator, which is another in each call");
  }
  const trace::BufferId buffer = state_.tensor_table.buffer_of(id);
  if (state_.tensor_table.buffers.live(buffer).origin != Origin::kForeign) return;
  const c10::TensorImpl* object = tensor.unsafeGetTensorImpl();
  if (state_.foreign.contains(object)) return;
  state_.foreign.emplace(
      object,
      Outside::Tensor{id, c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
                              tensor.getIntrusivePtr())});
}

bool Tape::is_in_told_call() const {
  const auto& open = state_.hints.open_calls();
  return !open.empty() && open.back().node == torch::autograd::get_current_node().get();
}

void Tape::name_context(Running& running) {
  const std::uint64_t sequence = is_owner() ? at::sequence_number::peek() : next_sequence_;
  const auto node = torch::autograd::get_current_node();
  const bool is_in_call = is_owner() && is_in_told_call();
  const trace::Index scope = running.op.scope;
  if (node != nullptr) name_backward(running, *node);
  if (node == nullptr || is_in_call) {
    running.op.scope = scope;
    name_forward(running, sequence);
  }
  if (is_in_call) {
    const ModuleCall call = state_.modules.issued_in(state_.hints.open_calls(), running.index);
    running.op.module = call.module;
    running.op.call = call.call;
  }
  next_sequence_ = sequence;
}

/// An op of the step's function, or of a module's that is called while backward runs.
void Tape::name_forward(Running& running, std::uint64_t sequence) {
  // Autograd made a node for this op just before it came here, if it made one.
  if (sequence == next_sequence_) return;
  running.op.sequence = static_cast<std::int64_t>(sequence - 1 - nodes_.first());
  if (!running.place.empty()) {
    scope_of_sequence_.try_emplace(running.op.sequence, running.op.scope);
  }
}

void Tape::name_backward(Running& running, const torch::autograd::Node& node) {
  running.op.phase = trace::Phase::kBackward;
  state_.graphs.on_node(node);
  if (const auto* accumulate = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node)) {
    const trace::TensorId variable = state_.tensor_table.recognise(accumulate->variable);
    if (variable != trace::kNoTensor) {
      state_.accumulations.emplace(running.index, state_.tensor_table.buffer_of(variable));
    }
    return;
  }
  const std::optional<std::int64_t> number = nodes_.number_of(node);
  if (!number) {
    state_.refusals.add(RefusalCode::kUnconsumedGraph, "backward", site_,
                        "backward runs through a graph that was built before the step");
    return;
  }
  // which nodes run depends on where that leads, which may be elsewhere in the next call
  const auto is_before = [this](const torch::autograd::Node& each) {
    return !nodes_.number_of(each);
  };
  const bool is_told = state_.hints.said.follows_numbers;  // with its line
  if (!is_told && state_.graphs.leads_out(node, is_before)) {
    state_.refusals.add(RefusalCode::kUnconsumedGraph, "backward", site_,
                        "backward meets a graph that was built before the step");
  }
  running.op.sequence = *number;
  const auto forward = scope_of_sequence_.find(running.op.sequence);
  if (forward != scope_of_sequence_.end()) running.op.scope = forward->second;
}

trace::Index Tape::scope_index(const std::string& place) {
  const std::string& open = ScopeWatch::current();
  const std::string scope = open.empty() || place.empty() ? open + place : open + " > " + place;
  if (scope.empty()) return trace::kNone;
  const auto next = static_cast<trace::Index>(state_.recording.scopes.size());
  const auto [entry, is_new] = scopes_.try_emplace(scope, next);
  if (is_new) state_.recording.scopes.push_back(scope);
  return entry->second;
}

void Tape::check_modes() {
  if (!is_owner()) return;
  const std::int64_t modes = c10::impl::TorchDispatchModeTLS::stack_len();
  if (modes_ < 0) modes_ = modes;
  if (modes > modes_) {
    state_.refusals.add(RefusalCode::kDispatchMode, "a dispatch mode", site_,
                        "the step runs under a dispatch mode of its own");
  }
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode)) {
    state_.refusals.add(RefusalCode::kDispatchMode, "a functorch transform", site_,
                        "the step runs under a functorch transform");
  }
}

void Tape::check_operator(const Running& running) {
  const live::Effects& effects = *running.known->effects;
  const bool has_opaque = std::ranges::any_of(running.op.inputs, is_opaque);
  if (effects.is_replayable() && !has_opaque) return;
  const live::Reach reach = has_opaque ? live::Reach::kOtherValues : effects.reach;
  state_.refusals.add(
      RefusalCode::kUnreplayableOp, site_,
      c10::str("a plan cannot call `", running.known->name, "`: it ", words_of(reach)));
}

/// Where a call draws that names no generator.
trace::Device Tape::device_of(Arguments arguments, const Running& running) const {
  for (const Tensor& tensor : running.arguments) {
    const auto buffer = state_.tensor_table.buffer_of(tensor.id);
    const trace::Device& device = state_.recording.buffers[buffer].device;
    if (device.kind != trace::DeviceKind::kCpu) return device;
  }
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) return live::device_of(argument.toDevice());
  }
  return {};
}

void Tape::note_streams() {
  for (const trace::Buffer& buffer : state_.recording.buffers) check_stream(buffer.device);
}

/// A replay gives all to the stream that it is called on: who waits for another one, as the eager
/// step's results ask for, would wait for nothing.
void Tape::check_stream(const trace::Device& device) {
  if (device.kind != trace::DeviceKind::kCuda) return;
  const auto index = static_cast<c10::DeviceIndex>(device.index);
  const c10::Stream now =
      c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(c10::Device(c10::kCUDA, index));
  if (streams_.try_emplace(index, now).first->second == now) return;
  state_.refusals.add(RefusalCode::kDevice, site_,
                      "the op is given to another stream than that on which the step was called");
}

void Tape::check_draw(Arguments arguments, Running& running) {
  std::optional<at::Generator> generator;
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) {
      generator = argument.toGenerator();
    }
  }
  if (!running.known->effects->is_random && !generator) return;
  const std::int64_t own = running.known->own_draws;
  if (own >= 0 && arguments[own].toDouble() != 0 && running.is_training) {
    state_.refusals.add(RefusalCode::kUntrackedGenerator, site_,
                        "the op draws from a state that it keeps to itself; with "
                        "torch.backends.cudnn.enabled = False it draws from torch's generator");
    return;
  }
  running.generator = generator ? state_.generators.path_of(*generator)
                                : live::default_generator_path(device_of(arguments, running));
  if (!state_.generators.watches(*running.generator)) {
    state_.refusals.add(RefusalCode::kUntrackedGenerator, site_,
                        "the op draws from a generator that is neither the default nor tracked");
    return;
  }
  if (auto seek = state_.generators.before_draw(*running.generator, running.index)) {
    if (!seek->is_earlier) {
      state_.refusals.add(RefusalCode::kGeneratorSeek, site_,
                          "generator `" + seek->generator + "` was set before the op");
    }
    state_.recording.seeks.push_back(std::move(*seek));
  }
}

}  // namespace steptape::recorder
