#include <ATen/TracerMode.h>
#include <ATen/core/Tensor.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "live/ambient.h"
#include "live/contents.h"
#include "live/fields.h"
#include "live/generator_state.h"
#include "live/tensors.h"
#include "recorder/recording_state.h"

namespace steptape::recorder {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

template <typename T>
Range range_of_elements(const at::Tensor& tensor) {
  const auto* data = static_cast<const T*>(tensor.const_data_ptr());
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  T low = std::numeric_limits<T>::max();
  T high = std::numeric_limits<T>::lowest();
  std::vector<std::int64_t> position(sizes.size(), 0);
  for (std::int64_t left = tensor.numel(), at = 0; left > 0; --left) {
    low = std::min(low, data[at]);
    high = std::max(high, data[at]);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      at += strides[d];
      if (++position[d] < sizes[d]) break;
      at -= strides[d] * sizes[d];
      position[d] = 0;
    }
  }
  return {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)};
}

/// Smallest and largest element of an integral CPU tensor; none for others, bool and empty ones.
std::optional<Range> range_of(const at::Tensor& tensor) {
  if (!tensor.defined() || live::unplannable_kind(tensor)) return std::nullopt;
  if (tensor.numel() == 0 || live::foreign_device(tensor)) return std::nullopt;
  if (!tensor.is_cpu()) {
    if (!at::isIntegralType(tensor.scalar_type(), false)) return std::nullopt;
    const live::Unseen unseen;
    return range_of(tensor.to(at::kCPU));
  }
  switch (tensor.scalar_type()) {
    case at::kByte:
      return range_of_elements<std::uint8_t>(tensor);
    case at::kChar:
      return range_of_elements<std::int8_t>(tensor);
    case at::kShort:
      return range_of_elements<std::int16_t>(tensor);
    case at::kInt:
      return range_of_elements<std::int32_t>(tensor);
    case at::kLong:
      return range_of_elements<std::int64_t>(tensor);
    default:
      return std::nullopt;
  }
}

using StorageSet = std::unordered_set<const c10::StorageImpl*>;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || live::unplannable_kind(tensor)) return nullptr;
  return tensor.storage().unsafeGetStorageImpl();
}

StorageSet storages_of(const live::Snapshot& snapshot) {
  StorageSet storages;
  for (const live::TensorAt& at : snapshot.tensors) {
    if (const auto* storage = storage_of(at.tensor)) storages.insert(storage);
  }
  return storages;
}

/// Bytes of a storage that the elements of a tensor span.
std::pair<std::uint64_t, std::uint64_t> extent_of(const at::Tensor& tensor) {
  return live::geometry_of(tensor, 0).byte_range();
}

/// Narrows the buffer of `storage` to what the arguments reach of it: the caller may pass slices
/// of one big allocation, at another place in it at each step.
void narrow(RecordingState& state, trace::BufferId id, const c10::StorageImpl* storage,
            const std::vector<Argument>& arguments) {
  std::uint64_t first = storage->nbytes();
  std::uint64_t last = 0;
  for (const Argument& argument : arguments) {
    if (!argument.is_tensor || storage_of(argument.tensor) != storage) continue;
    const auto [begin, end] = extent_of(argument.tensor);
    if (begin == end) continue;
    first = std::min(first, begin);
    last = std::max(last, end);
  }
  if (first >= last) first = last = 0;
  state.tensor_table.buffers.live(id).first_byte = first;
  trace::Buffer& description = state.tensor_table.buffers.description(id);
  description.bytes = last - first;
  description.address_mod_64 = static_cast<std::uint8_t>(
      description.bytes == 0 ? 0 : (live::address_mod_64(*storage) + first) % 64);
}

trace::TensorId write_input_tensor(RecordingState& state, const std::string& path,
                                   const at::Tensor& tensor, const StorageSet& tracked,
                                   const std::vector<Argument>& arguments) {
  const c10::StorageImpl* storage = storage_of(tensor);
  auto& buffers = state.tensor_table.buffers;
  if (storage == nullptr || tracked.contains(storage) || buffers.find(storage)) {
    return state.tensor_table.see(tensor, Origin::kTracked, {});
  }
  const trace::BufferId id = buffers.add(tensor.storage().unsafeGetStorageImpl(), Origin::kInput);
  buffers.description(id).role = trace::Role::kInput;
  buffers.description(id).path = path;
  narrow(state, id, storage, arguments);
  buffers.place(id);  // the step has made nothing yet
  return state.tensor_table.see(tensor, Origin::kInput, {});
}

void write_inputs(RecordingState& state, const std::vector<Argument>& arguments,
                  const StorageSet& tracked) {
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const Argument& argument = arguments[k];
    trace::Input& input = state.recording.inputs.emplace_back();
    input.path = c10::str("inputs[", k, "]");
    if (!argument.is_tensor) {
      input.value = argument.fact;
      continue;
    }
    input.value = {trace::TensorRef{
        write_input_tensor(state, input.path, argument.tensor, tracked, arguments)}};
    input.requires_grad = argument.tensor.defined() && argument.tensor.requires_grad();
    input.range = range_of(argument.tensor);
  }
}

/// Which inputs are one tensor with another or with a tracked one: gradients of it are one.
void write_same_inputs(trace::Recording& recording, const std::vector<Argument>& arguments,
                       const live::Snapshot& snapshot) {
  std::unordered_map<const c10::TensorImpl*, std::string> known;
  for (const live::TensorAt& at : snapshot.tensors) {
    if (at.tensor.defined() && at.role != trace::Role::kGradient) {
      known.try_emplace(at.tensor.unsafeGetTensorImpl(), at.path);
    }
  }
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (!arguments[k].is_tensor || !arguments[k].tensor.defined()) continue;
    trace::Input& input = recording.inputs[k];
    const auto [entry, is_new] =
        known.try_emplace(arguments[k].tensor.unsafeGetTensorImpl(), input.path);
    if (!is_new) input.same_as = entry->second;
  }
}

void write_tracked(RecordingState& state, const live::Snapshot& snapshot) {
  std::vector<bool> is_named;
  for (const live::TensorAt& at : snapshot.tensors) {
    const trace::TensorId id = state.tensor_table.see(at.tensor, Origin::kTracked, {});
    const bool requires_grad = at.tensor.defined() && at.tensor.requires_grad();
    state.recording.tracked.push_back(
        {at.path, at.role, id, requires_grad, at.aliases, at.in_state_dict});
    state.entry.push_back({at.path, at.role, id, version_of(at.tensor),
                           c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
                               at.tensor.getIntrusivePtr()),
                           live::gradient_type_of(at.tensor)});
    if (id == trace::kNoTensor) continue;
    const trace::BufferId buffer = state.tensor_table.buffer_of(id);
    if (at.role == trace::Role::kParameter || at.role == trace::Role::kModuleBuffer) {
      state.modules.own(buffer, at.path);
    }
    if (is_named.size() <= buffer) is_named.resize(buffer + 1);
    if (is_named[buffer]) continue;
    is_named[buffer] = true;
    state.tensor_table.buffers.description(buffer).role = at.role;
    state.tensor_table.buffers.description(buffer).path = at.path;
  }
}

void write_optimizers(RecordingState& state, const live::Snapshot& snapshot) {
  for (trace::OptimizerLayout layout : snapshot.optimizers) {
    for (trace::OptimizerStateEntry& entry : layout.state) {
      if (auto* tensor = std::get_if<trace::TensorRef>(&entry.value.data)) {
        tensor->id = state.entry[tensor->id].tensor;
      }
    }
    state.recording.optimizers.push_back(std::move(layout));
  }
}

void write_ambient(RecordingState& state) {
  const live::Ambient ambient = live::Ambient::current();
  state.recording.ambient = ambient.facts();
  const auto refuse = [&](bool active, const char* what) {
    if (!active) return;
    state.refusals.add(RefusalCode::kDispatchMode, what, {}, c10::str(what, " is active"));
  };
  const bool traces = at::tracer::impl::is_dispatch_enabled();
  refuse(ambient["dispatch_mode"] != 0 && !traces, "a dispatch mode");
  refuse(ambient["functorch"] != 0, "a functorch transform");
  refuse(ambient["torch_function_mode"] != 0, "a torch-function mode");
  refuse(traces, "a tracer");
}

/// Calls `visit(bytes)` with what a buffer holds; not for one on a device without addresses.
template <typename Visit>
void look_at_bytes(const RecordingState& state, trace::BufferId id, Visit&& visit) {
  const LiveBuffer& live = state.tensor_table.buffers.live(id);
  const auto* first = static_cast<const std::byte*>(live.storage->data()) + live.first_byte;
  const std::uint64_t bytes = state.recording.buffers[id].bytes;
  const c10::Device device = live.storage->device();
  if (device.is_cpu()) visit(std::span(first, bytes));
  if (device.is_cuda())
    visit(std::span<const std::byte>(live::bytes_on_host(first, device, bytes)));
}

}  // namespace

std::optional<std::uint32_t> version_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference()) return std::nullopt;
  return tensor._version();
}

bool has_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_leaf() && tensor.grad().defined();
}

void write_entry(RecordingState& state, const std::vector<Argument>& arguments) {
  const live::Snapshot snapshot = state.objects.snapshot();
  state.modules.enter(snapshot);
  write_inputs(state, arguments, storages_of(snapshot));
  write_same_inputs(state.recording, arguments, snapshot);
  write_tracked(state, snapshot);
  write_optimizers(state, snapshot);
  write_ambient(state);
  for (const Argument& argument : arguments) {
    state.argument_versions.push_back(version_of(argument.tensor));
    state.arguments_with_gradients.push_back(has_gradient(argument.tensor));
  }
}

void write_entry_digests(RecordingState& state) {
  auto& buffers = state.tensor_table.buffers;
  for (trace::BufferId id = 0; id < buffers.size(); ++id) {
    look_at_bytes(state, id, [&](std::span<const std::byte> bytes) {
      buffers.description(id).digest = trace::digest_of(bytes);
    });
  }
  for (const auto& [path, generator] : state.objects.generators()) {
    const at::Tensor bytes = live::state_of(generator);
    state.recording.generators.push_back({path, live::digest_of(bytes), nullptr});
  }
}

void copy_entry(const RecordingState& state, std::vector<trace::Blob>& found,
                std::vector<trace::Blob>& generators) {
  for (trace::BufferId id = 0; id < state.tensor_table.buffers.size(); ++id) {
    found.emplace_back();
    look_at_bytes(state, id, [&](std::span<const std::byte> bytes) {
      found.back() = trace::make_blob(bytes.data(), bytes.size());
    });
  }
  for (const auto& [path, generator] : state.objects.generators()) {
    const at::Tensor bytes = live::state_of(generator);
    generators.push_back(trace::make_blob(bytes.const_data_ptr(), bytes.nbytes()));
  }
}

}  // namespace steptape::recorder
