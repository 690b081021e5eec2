#include "replayer/runtime/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include "live/contents.h"
#include "live/tensors.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::replayer {
namespace {

/// Bytes whose allocation takes longer than their use: gradients and results of small layers. Each
/// plan keeps its own, so that larger ones would add up.
constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;

}  // namespace

Memory::Memory(const Program& program)
    : recording_(*program.recording), nothing_(storage_over(nullptr, 0)) {
  const c10::Storage arena = allocate(program.arena_bytes, 0);
  storages_.reserve(recording_.buffers.size());
  stays_.resize(recording_.buffers.size());
  for (trace::BufferId id = 0; id < recording_.buffers.size(); ++id) {
    const trace::Buffer& buffer = recording_.buffers[id];
    switch (program.buffers[id].placement) {
      case Placement::kArena: {
        char* address = static_cast<char*>(arena.mutable_data()) + program.buffers[id].arena_offset;
        storages_.push_back(storage_within(arena, address, buffer.bytes));
        break;
      }
      case Placement::kConstant:
      case Placement::kStaging:
        storages_.push_back(
            allocate(buffer.bytes, buffer.address_mod_64, live::device_of(buffer.device).type()));
        if (program.buffers[id].placement == Placement::kConstant) refill(id);
        break;
      case Placement::kMade:
        stays_[id] = buffer.bytes != 0 && buffer.bytes <= kSmall;
        [[fallthrough]];
      case Placement::kBound:
      case Placement::kAdopted:
      case Placement::kCaptured:
        // comes with each run; each its own, so that nothing looks as if it lay on something else
        storages_.push_back(storage_over(nullptr, buffer.bytes, live::device_of(buffer.device)));
        break;
    }
  }
  given_.resize(recording_.buffers.size());
  tensors_on_.resize(recording_.buffers.size());
  tensors_.reserve(recording_.tensors.size());
  for (trace::TensorId id = 0; id < recording_.tensors.size(); ++id) {
    const trace::BufferId buffer = recording_.tensors[id].buffer;
    tensors_on_[buffer].push_back(id);
    tensors_.push_back(tensor_on(storages_[buffer], recording_.tensors[id]));
  }
}

const at::Tensor& Memory::tensor(trace::TensorId id) const {
  return id == trace::kNoTensor ? undefined_ : tensors_[id];
}

at::Tensor Memory::fresh_tensor(trace::TensorId id) const {
  return tensor_on(storages_[recording_.tensors[id].buffer], recording_.tensors[id]);
}

at::Tensor Memory::gradient(trace::TensorId id) {
  const trace::BufferId buffer = recording_.tensors[id].buffer;
  if (!stays_[buffer]) return fresh_tensor(id);
  Given& given = given_[buffer];
  const bool is_free = given.tensor.defined() && given.tensor.use_count() == 1;
  if (is_free && given.id == id) return given.tensor;
  given = {id, fresh_tensor(id)};
  return given.tensor;
}

at::Tensor Memory::copied_tensor(trace::TensorId id) const {
  return copied_tensor_on(storages_[recording_.tensors[id].buffer], recording_.tensors[id]);
}

void Memory::point_at(trace::BufferId buffer, void* address) {
  c10::StorageImpl* storage = storages_[buffer].unsafeGetStorageImpl();
  if (storage->data() == address) return;
  storage->set_data_ptr_noswap(at::DataPtr(address, storage->device()));
}

void* Memory::address(trace::BufferId buffer) const { return storages_[buffer].mutable_data(); }

void Memory::adopt(trace::BufferId buffer, const c10::Storage& storage) {
  storages_[buffer] = storage;
  for (const trace::TensorId id : tensors_on_[buffer]) {
    tensors_[id].unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  }
}

bool Memory::is_as_given(const Given& given) const {
  c10::TensorImpl& tensor = *given.tensor.unsafeGetTensorImpl();
  const at::Tensor& own = tensors_[given.id];
  return given.tensor.use_count() == 1 && given.tensor.weak_use_count() == 1 &&
         tensor.pyobj_slot()->load_pyobj() == nullptr && tensor.autograd_meta() == nullptr &&
         // an inference tensor has no version
         !tensor.is_inference() && !c10::InferenceMode::is_enabled() &&
         tensor.version_counter().current_version() == 0 && tensor.key_set() == own.key_set() &&
         tensor.dtype() == own.dtype() && tensor.sizes() == own.sizes() &&
         tensor.strides() == own.strides() && tensor.storage_offset() == own.storage_offset() &&
         given.tensor.is_alias_of(own);
}

bool Memory::is_ours_alone(trace::BufferId buffer) const {
  const c10::Storage& storage = storages_[buffer];
  const std::size_t own =
      1 + tensors_on_[buffer].size() + (given_[buffer].tensor.defined() ? 1 : 0);
  return storage.use_count() == own && storage.nbytes() == recording_.buffers[buffer].bytes &&
         // neither swapped for other memory nor shared with a lazy clone
         storage.data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter();
}

void Memory::make(trace::BufferId buffer) {
  if (stays_[buffer]) {
    Given& given = given_[buffer];
    if (given.tensor.defined() && !is_as_given(given)) given = {};
    if (is_ours_alone(buffer)) return;
    given = {};
  }
  adopt(buffer, c10::Storage(c10::Storage::use_byte_size_t(),
                             static_cast<std::size_t>(recording_.buffers[buffer].bytes),
                             c10::GetCPUAllocator(), /*resizable=*/true));
}

void Memory::release(trace::BufferId buffer) {
  if (!stays_[buffer]) adopt(buffer, nothing_);
}

void Memory::refill(trace::BufferId constant) {
  const trace::Buffer& buffer = recording_.buffers[constant];
  if (buffer.bytes == 0) return;
  live::copy_bytes(storages_[constant].mutable_data(), storages_[constant].device(),
                   buffer.content->data(), c10::Device(c10::kCPU), buffer.bytes);
}

}  // namespace steptape::replayer
