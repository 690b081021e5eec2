#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "replayer/runtime/cuda/executor.h"

namespace steptape::replayer::cuda {
namespace {

class Cuda final : public Backend {
 public:
  std::unique_ptr<replayer::Executor> make(std::shared_ptr<const trace::Recording> recording,
                                           const GeneratorOf& generator,
                                           const ExecutorOptions& options) const override {
    return cuda::make_executor(std::move(recording), generator, options);
  }

  bool is_capturing() const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &status);
    if (error != cudaSuccess) cudaGetLastError();
    return error != cudaSuccess || status != cudaStreamCaptureStatusNone;
  }
};

}  // namespace
}  // namespace steptape::replayer::cuda

/// What the library is loaded for (replayer/runtime/backends.cc). Its name holds the version, and
/// `mark` the layouts, that both sides must have.
extern "C" __attribute__((visibility("default"))) const steptape::replayer::Backend*
steptape_cuda_backend_0_1(std::uint64_t mark) {
  if (mark != steptape::replayer::interface_mark()) return nullptr;
  static const steptape::replayer::cuda::Cuda backend;
  return &backend;
}
