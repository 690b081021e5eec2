#include "replayer/runtime/cuda/graph_pool.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "replayer/runtime/cuda/graph.h"

namespace steptape::replayer::cuda {
namespace {

/// Side streams that no pool has now. A stream is never destroyed: allocators remember it for
/// memory that was used there, and so do libraries for their workspaces.
struct FreeStreams {
  std::mutex mutex;
  std::map<c10::DeviceIndex, std::vector<cudaStream_t>> streams;
};

FreeStreams& free_streams() {
  static FreeStreams& streams = *new FreeStreams;
  return streams;
}

c10::cuda::CUDAStream take_stream(c10::Device device) {
  FreeStreams& free = free_streams();
  cudaStream_t stream = nullptr;
  {
    const std::lock_guard lock(free.mutex);
    std::vector<cudaStream_t>& here = free.streams[device.index()];
    if (!here.empty()) {
      stream = here.back();
      here.pop_back();
    }
  }
  if (stream == nullptr) {
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "making a stream");
  }
  return c10::cuda::getStreamFromExternal(stream, device.index());
}

using Shared = std::shared_ptr<at::DataPtr>;

void let_go(void* shared) { delete static_cast<Shared*>(shared); }

/// A second owner of what `memory` owns.
Shared share(at::DataPtr& memory) {
  if (memory.get_deleter() == &let_go) return *static_cast<Shared*>(memory.get_context());
  auto shared = std::make_shared<at::DataPtr>(std::move(memory));
  memory = at::DataPtr(shared->get(), new Shared(shared), &let_go, shared->device());
  return shared;
}

}  // namespace

GraphPool::GraphPool(c10::Device device)
    : id_(at::cuda::graph_pool_handle()), side_(take_stream(device)), keeper_(id_, {}) {
  // the allocators of the device and of pinned memory give up a pool with its last graph, and
  // never take it again: this one stays
  const c10::cuda::CUDAStreamGuard on_side(side_);
  keeper_.begin();
  check(cudaLaunchHostFunc(
            side_, [](void*) {}, nullptr),
        "beginning a pool");
  keeper_.end();
}

GraphPool::~GraphPool() {
  FreeStreams& free = free_streams();
  const std::lock_guard lock(free.mutex);
  free.streams[side_.device_index()].push_back(side_.stream());
}

std::shared_ptr<GraphPool> GraphPool::of(const ExecutorOptions& options, c10::Device device) {
  if (options.pools == nullptr) return std::make_shared<GraphPool>(device);
  std::shared_ptr<SharedPool>& pool = (*options.pools)[device.index()];
  if (pool == nullptr) pool = std::make_shared<GraphPool>(device);
  return std::static_pointer_cast<GraphPool>(pool);
}

void GraphPool::keep_workspaces() {
  for (auto* all : {&at::cuda::cublas_handle_stream_to_workspace(),
                    &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::unique_lock lock(all->mutex);
    for (auto& [handle_and_stream, memory] : all->map) {
      if (std::get<1>(handle_and_stream) != side_.stream() || !memory) continue;
      Shared shared = share(memory);
      if (std::ranges::find(workspaces_, shared) == workspaces_.end()) {
        workspaces_.push_back(std::move(shared));
      }
    }
  }
}

void GraphPool::settle_gradients() {
  if (given_.is_empty()) return;
  const c10::cuda::CUDAGuard on_device(side_.device_index());
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  enter(stream);
  given_.move_out();
  leave(stream);
}

}  // namespace steptape::replayer::cuda
