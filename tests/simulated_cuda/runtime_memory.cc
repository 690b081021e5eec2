#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/simulated_cuda/runtime.h"

namespace steptape::tests::simulated {
namespace {

bool is_device(MemoryKind kind) { return kind == MemoryKind::kDevice; }

Work memcpy_work(void* to, const void* from, std::size_t bytes) {
  Work work;
  work.type = cudaGraphNodeTypeMemcpy;
  work.copies_to = to;
  work.copies_from = from;
  work.body = [=](std::span<const std::byte>) { std::memmove(to, from, bytes); };
  return work;
}

Work memset_work(void* to, int value, std::size_t bytes) {
  Work work;
  work.type = cudaGraphNodeTypeMemset;
  work.body = [=](std::span<const std::byte>) { std::memset(to, value, bytes); };
  return work;
}

/// Pageable memory on the host side: read at the call, or awaited by it. In a capture both are
/// left to the launch, which reads (writes) whatever lies at the address then.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t handle) {
  Runtime& runtime = simulated::runtime();
  const auto stream = runtime.stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const MemoryKind target = runtime.memory.kind_of(to);
  const MemoryKind source = runtime.memory.kind_of(from);
  if (stream->capture) return runtime.submit(stream, memcpy_work(to, from, bytes));
  if (source == MemoryKind::kPageable && is_device(target)) {
    auto bytes_now = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(bytes_now->data(), from, bytes);
    Work work = memcpy_work(to, bytes_now->data(), bytes);
    work.body = [=](std::span<const std::byte>) {
      std::memcpy(to, bytes_now->data(), bytes_now->size());
    };
    return runtime.submit(stream, std::move(work));
  }
  const cudaError_t error = runtime.submit(stream, memcpy_work(to, from, bytes));
  const bool is_awaited = target == MemoryKind::kPageable;
  if (error == cudaSuccess && is_awaited) runtime.scheduler.run_until({stream, stream->enqueued});
  return error;
}

cudaError_t allocate(void** pointer, std::size_t bytes, MemoryKind kind) {
  Runtime& runtime = simulated::runtime();
  if (!pointer) return cudaErrorInvalidValue;
  if (const auto error = runtime.refuse_unsafe_in_capture()) return error;
  *pointer = is_device(kind) ? runtime.memory.allocate_device(bytes)
                             : runtime.memory.allocate_pinned(bytes);
  return *pointer || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

/// cudaFree and cudaFreeHost wait for all work, in CUDA as here.
cudaError_t release(void* pointer, MemoryKind kind) {
  Runtime& runtime = simulated::runtime();
  if (!pointer) return cudaSuccess;
  if (const auto error = runtime.refuse_unsafe_in_capture()) return error;
  runtime.scheduler.run_all();
  return runtime.memory.release(pointer, kind) ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace
}  // namespace steptape::tests::simulated

namespace simulated = steptape::tests::simulated;
using simulated::finish;
using simulated::MemoryKind;
using simulated::runtime;

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  return finish(simulated::allocate(pointer, bytes, MemoryKind::kDevice));
}

cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(runtime().mutex);
  return finish(simulated::release(pointer, MemoryKind::kDevice));
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int) {
  const std::lock_guard lock(runtime().mutex);
  return finish(simulated::allocate(pointer, bytes, MemoryKind::kPinned));
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  const std::lock_guard lock(runtime().mutex);
  return finish(simulated::release(pointer, MemoryKind::kPinned));
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned int) {
  const std::lock_guard lock(runtime().mutex);
  runtime().memory.register_pinned(pointer, bytes);
  return finish(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* pointer) {
  const std::lock_guard lock(runtime().mutex);
  return finish(runtime().memory.unregister_pinned(pointer) ? cudaSuccess
                                                            : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::lock_guard lock(runtime().mutex);
  const auto& memory = runtime().memory;
  *total_bytes = memory.limit_bytes();
  *free_bytes = memory.limit_bytes() - std::min(memory.limit_bytes(), memory.allocated_bytes());
  return finish(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock(runtime().mutex);
  const MemoryKind kind = runtime().memory.kind_of(pointer);
  *attributes = {};
  attributes->type = kind == MemoryKind::kDevice   ? cudaMemoryTypeDevice
                     : kind == MemoryKind::kPinned ? cudaMemoryTypeHost
                                                   : cudaMemoryTypeUnregistered;
  attributes->device = kind == MemoryKind::kPageable ? cudaInvalidDeviceId : 0;
  void* const address = const_cast<void*>(pointer);
  if (kind != MemoryKind::kPageable) attributes->devicePointer = address;
  if (kind != MemoryKind::kDevice) attributes->hostPointer = address;
  return finish(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  return finish(simulated::copy(to, from, bytes, stream));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(runtime().mutex);
  if (const auto error = runtime().refuse_unsafe_in_capture()) return finish(error);
  const cudaError_t error = simulated::copy(to, from, bytes, nullptr);
  const auto stream = runtime().stream_of(nullptr);
  runtime().scheduler.run_until({stream, stream->enqueued});
  return finish(error);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  return finish(
      runtime().submit(runtime().stream_of(stream), simulated::memset_work(to, value, bytes)));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  if (const auto error = runtime().refuse_unsafe_in_capture()) return finish(error);
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

}  // extern "C"
