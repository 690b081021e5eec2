#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <memory>
#include <optional>

#include "replayer/cuda/errors.h"
#include "replayer/cuda/graph.h"
#include "replayer/run/backends.h"

namespace steptape::replayer::cuda {

/// The memory that graphs of one session take their temporaries from. They share it, since one runs
/// behind the other; on whatever stream, each waits for the one before.
class GraphPool final : public SharedPool {
 public:
  /// For the current device.
  GraphPool() {
    // the allocators of the device and of pinned memory give up a pool with its last graph, and
    // never take it again: this one stays
    const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
    keeper_.begin();
    check(cudaLaunchHostFunc(
              c10::cuda::getCurrentCUDAStream(), [](void*) {}, nullptr),
          "beginning a pool");
    keeper_.end();
  }

  /// That of the session, made when first asked for.
  static std::shared_ptr<GraphPool> of(const ExecutorOptions& options) {
    if (options.pool == nullptr) return std::make_shared<GraphPool>();
    if (*options.pool == nullptr) *options.pool = std::make_shared<GraphPool>();
    return std::static_pointer_cast<GraphPool>(*options.pool);
  }

  c10::MempoolId_t id() const { return id_; }

  /// What is given to `stream` from here on comes behind the last launch from the pool.
  void enter(const c10::cuda::CUDAStream& stream) {
    if (last_ && *last_ != stream) done_.block(stream);
  }
  void leave(const c10::cuda::CUDAStream& stream) {
    done_.record(stream);
    last_ = stream;
  }
  /// Waits on the host.
  void wait() {
    if (last_) done_.synchronize();
  }

 private:
  c10::MempoolId_t id_ = at::cuda::graph_pool_handle();
  Graph keeper_{id_, {}};
  at::cuda::CUDAEvent done_;
  std::optional<c10::cuda::CUDAStream> last_;
};

}  // namespace steptape::replayer::cuda
