#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <unordered_set>

#include "tests/simulated_cuda/memory.h"
#include "tests/simulated_cuda/scheduler.h"

namespace steptape::tests::simulated {

/// The state after the CUDA runtime functions. Each of them holds `mutex` while it runs, and so
/// does work that runs, which therefore must not call the runtime (nor may CUDA's host functions).
struct Runtime {
  std::recursive_mutex mutex;
  Memory memory;
  Scheduler scheduler;
  std::unordered_set<Event*> events;
  std::unordered_set<Graph*> graphs;  ///< owned, until cudaGraphDestroy
  std::unordered_set<Executable*> executables;
  std::unordered_set<std::shared_ptr<Capture>> captures;  ///< under way
  std::uint64_t next_capture = 1;

  /// The stream of a handle: nullptr and cudaStreamLegacy are the legacy default stream. Null for a
  /// handle that is none.
  std::shared_ptr<Stream> stream_of(cudaStream_t handle) const;

  /// Gives `work` to the stream, or to the graph where the stream captures.
  cudaError_t submit(const std::shared_ptr<Stream>& stream, Work work);

  /// For a call that waits for `stream`: an error, and an invalid capture, where it captures.
  cudaError_t refuse_wait_in_capture(Stream& stream);
  /// For a call that CUDA holds unsafe during a capture (cudaMalloc, cudaEventQuery, ...): an error
  /// where a capture under way forbids it to this thread. See cudaThreadExchangeStreamCaptureMode.
  cudaError_t refuse_unsafe_in_capture();
};
/// The one of this process; it is never destroyed.
Runtime& runtime();

/// The calling thread's capture mode and last error.
cudaStreamCaptureMode& capture_mode();
cudaError_t& last_error();

/// Notes an error as the thread's last and returns it. Failed work on the device comes first.
cudaError_t finish(cudaError_t error);

/// Says on stderr that `function` is not simulated, and returns the error for it.
cudaError_t not_simulated(const char* function);

}  // namespace steptape::tests::simulated
