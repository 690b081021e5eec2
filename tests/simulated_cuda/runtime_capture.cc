#include <utility>

#include "tests/simulated_cuda/runtime.h"

namespace simulated = steptape::tests::simulated;
using simulated::Capture;
using simulated::finish;
using simulated::runtime;

namespace {

cudaStreamCaptureStatus status_of(const simulated::Stream& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->is_invalidated ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
}

/// Takes the streams out of the capture: they are ordinary streams again, whatever it came to.
void leave(Capture& capture) {
  for (simulated::Stream* stream : capture.streams) {
    stream->tail.clear();
    stream->capture = nullptr;
  }
  capture.streams.clear();
}

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, simulated::capture_mode());
  return finish(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  if (stream == runtime().scheduler.streams().front())
    return finish(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return finish(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->id = runtime().next_capture++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream.get();
  capture->streams.insert(stream.get());
  stream->capture = capture;
  stream->tail.clear();
  runtime().captures.insert(std::move(capture));
  return finish(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  *graph = nullptr;
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  const auto capture = stream->capture;
  if (!capture) return finish(cudaErrorIllegalState);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return finish(cudaErrorStreamCaptureWrongThread);
  if (capture->origin != stream.get()) {
    capture->is_invalidated = true;
    return finish(cudaErrorStreamCaptureUnmatched);
  }
  cudaError_t error = cudaSuccess;
  if (capture->is_invalidated) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (!capture->graph->is_joined_by(stream->tail)) {
    error = cudaErrorStreamCaptureUnjoined;
  } else {
    auto* const made = capture->graph.release();
    runtime().graphs.insert(made);
    *graph = reinterpret_cast<cudaGraph_t>(made);
  }
  capture->graph = nullptr;
  leave(*capture);
  runtime().captures.erase(capture);
  return finish(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  *status = status_of(*stream);
  return finish(cudaSuccess);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  *status = status_of(*stream);
  if (*status != cudaStreamCaptureStatusActive) return finish(cudaSuccess);
  if (id) *id = stream->capture->id;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(stream->capture->graph.get());
  if (dependencies) *dependencies = reinterpret_cast<const cudaGraphNode_t*>(stream->tail.data());
  if (edges) *edges = nullptr;
  if (count) *count = stream->tail.size();
  return finish(cudaSuccess);
}

}  // extern "C"
