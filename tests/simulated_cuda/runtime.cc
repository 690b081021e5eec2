#include "tests/simulated_cuda/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace steptape::tests::simulated {

namespace {

Runtime* make_runtime() {
  auto* const runtime = new Runtime;
  const char* const text = std::getenv("STEPTAPE_SIMULATED_CUDA_ORDER");
  const std::string_view order = text ? text : "needed_only";
  if (order == "others_first")
    runtime->scheduler.set_order(Order::kOthersFirst, 0);
  else if (order != "needed_only")
    runtime->scheduler.set_order(Order::kShuffled, std::strtoull(text, nullptr, 10));
  return runtime;
}

}  // namespace

Runtime& runtime() {
  static auto& runtime = *make_runtime();
  return runtime;
}

cudaStreamCaptureMode& capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

cudaError_t finish(cudaError_t error) {
  if (runtime().scheduler.has_failed()) error = cudaErrorLaunchFailure;
  if (error != cudaSuccess) last_error() = error;
  return error;
}

cudaError_t not_simulated(const char* function) {
  std::fprintf(stderr, "simulated CUDA: %s is not simulated\n", function);
  return finish(cudaErrorNotSupported);
}

std::shared_ptr<Stream> Runtime::stream_of(cudaStream_t handle) const {
  if (handle == nullptr || handle == cudaStreamLegacy) return scheduler.streams().front();
  return scheduler.find(handle);
}

cudaError_t Runtime::submit(const std::shared_ptr<Stream>& stream, Work work) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    if (stream->capture->is_invalidated) return cudaErrorStreamCaptureInvalidated;
    stream->tail = {stream->capture->graph->add(std::move(work), stream->tail)};
    return cudaSuccess;
  }
  if (stream == scheduler.streams().front()) {
    for (const auto& capture : captures)
      for (const Stream* captured : capture->streams)
        if (captured->is_blocking) {
          capture->is_invalidated = true;
          return cudaErrorStreamCaptureImplicit;
        }
  }
  scheduler.enqueue(stream, std::move(work));
  return cudaSuccess;
}

cudaError_t Runtime::refuse_wait_in_capture(Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  if (stream.capture->is_invalidated) return cudaErrorStreamCaptureInvalidated;
  stream.capture->is_invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t Runtime::refuse_unsafe_in_capture() {
  if (capture_mode() == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const auto thread = std::this_thread::get_id();
  for (const auto& capture : captures) {
    const bool is_own = capture->thread == thread && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool is_anothers = capture->thread != thread &&
                             capture->mode == cudaStreamCaptureModeGlobal &&
                             capture_mode() == cudaStreamCaptureModeGlobal;
    if (!is_own && !is_anothers) continue;
    capture->is_invalidated = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}

void set_order(Order order, std::uint64_t seed) {
  const std::lock_guard lock(runtime().mutex);
  runtime().scheduler.set_order(order, seed);
}

void set_memory_limit(std::size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  runtime().memory.set_limit(bytes);
}

std::size_t allocated_bytes() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().memory.allocated_bytes();
}

std::size_t pending_work() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().scheduler.pending();
}

bool has_failed() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().scheduler.has_failed();
}

void clear_failure() {
  const std::lock_guard lock(runtime().mutex);
  runtime().scheduler.clear_failure();
  last_error() = cudaSuccess;
}

}  // namespace steptape::tests::simulated
