#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <optional>
#include <vector>

#include "replayer/runtime/backends.h"
#include "replayer/runtime/cuda/given_gradients.h"
#include "replayer/runtime/cuda/graph.h"

namespace steptape::replayer::cuda {

/// What the graphs of one session share on one device: the memory that they take their temporaries
/// from, since one runs after the other (on whatever stream, each waits for the one before), the
/// stream that they are captured on, and what libraries keep for that stream.
class GraphPool final : public SharedPool {
 public:
  explicit GraphPool(c10::Device device);
  ~GraphPool() override;
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// That of the session on the current device, made when first asked for.
  static std::shared_ptr<GraphPool> of(const ExecutorOptions& options, c10::Device device);

  c10::MempoolId_t id() const { return id_; }
  /// No other's.
  c10::cuda::CUDAStream side() const { return side_; }
  /// Graphs have the addresses of cuBLAS's workspaces of the side stream: those that are there now
  /// live as long as this, also where the program clears them
  /// (torch._C._cuda_clearCublasWorkspaces).
  void keep_workspaces();

  /// Gradients of all plans that lie in the graphs' memory: what one plan's gradient lies in may be
  /// another one's temporary.
  GivenGradients& given() { return given_; }
  void settle_gradients() override;

  /// What is given to `stream` from here on comes after the last launch from the pool.
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
  c10::MempoolId_t id_;
  c10::cuda::CUDAStream side_;
  Graph keeper_;
  std::vector<std::shared_ptr<at::DataPtr>> workspaces_;
  GivenGradients given_;
  at::cuda::CUDAEvent done_;
  std::optional<c10::cuda::CUDAStream> last_;
};

}  // namespace steptape::replayer::cuda
