#include <algorithm>
#include <functional>
#include <utility>

#include "tests/simulated_cuda/runtime.h"

namespace simulated = steptape::tests::simulated;
using simulated::finish;
using simulated::runtime;

namespace {

cudaStream_t handle_of(simulated::Stream* stream) { return reinterpret_cast<cudaStream_t>(stream); }

cudaError_t make_stream(cudaStream_t* handle, unsigned int flags, int priority) {
  const std::lock_guard lock(runtime().mutex);
  const bool is_blocking = (flags & cudaStreamNonBlocking) == 0;
  *handle = handle_of(runtime().scheduler.make_stream(is_blocking, priority).get());
  return finish(cudaSuccess);
}

cudaError_t launch_host_function(cudaStream_t stream, std::function<void()> function) {
  const std::lock_guard lock(runtime().mutex);
  simulated::Work work;
  work.type = cudaGraphNodeTypeHost;
  work.body = [function = std::move(function)](std::span<const std::byte>) { function(); };
  return finish(runtime().submit(runtime().stream_of(stream), std::move(work)));
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return make_stream(stream, 0, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return make_stream(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return make_stream(stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream || handle == nullptr) return finish(cudaErrorInvalidResourceHandle);
  if (stream->capture) return finish(cudaErrorStreamCaptureUnsupported);
  runtime().scheduler.remove_stream(stream.get());
  return finish(cudaSuccess);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return finish(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return finish(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  if (const auto error = runtime().refuse_wait_in_capture(*stream)) return finish(error);
  runtime().scheduler.run_until({stream, stream->enqueued});
  return finish(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  if (!stream) return finish(cudaErrorInvalidResourceHandle);
  if (const auto error = runtime().refuse_wait_in_capture(*stream)) return finish(error);
  const simulated::Point end{stream, stream->enqueued};
  runtime().scheduler.run_one_towards(end);
  return finish(simulated::Scheduler::is_reached(end) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(runtime().mutex);
  for (const auto& capture : runtime().captures) {
    capture->is_invalidated = true;
    return finish(cudaErrorStreamCaptureUnsupported);
  }
  runtime().scheduler.run_all();
  return finish(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned int flags) {
  const std::lock_guard lock(runtime().mutex);
  const auto stream = runtime().stream_of(handle);
  auto* const event = reinterpret_cast<simulated::Event*>(event_handle);
  if (!stream || !runtime().events.count(event)) return finish(cudaErrorInvalidResourceHandle);
  if (flags == cudaEventWaitExternal) return simulated::not_simulated("cudaEventWaitExternal");
  if (event->capture) {
    if (!event->capture->graph) return finish(cudaErrorCapturedEvent);
    if (event->capture->is_invalidated) return finish(cudaErrorStreamCaptureInvalidated);
    if (stream->capture && stream->capture != event->capture) {
      stream->capture->is_invalidated = event->capture->is_invalidated = true;
      return finish(cudaErrorStreamCaptureMerge);
    }
    stream->capture = event->capture;
    stream->capture->streams.insert(stream.get());
    for (simulated::Node* node : event->tail)
      if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
        stream->tail.push_back(node);
    return finish(cudaSuccess);
  }
  if (!event->is_recorded) return finish(cudaSuccess);
  if (stream->capture) {
    if (stream->capture->is_invalidated) return finish(cudaErrorStreamCaptureInvalidated);
    stream->capture->is_invalidated = true;
    return finish(cudaErrorStreamCaptureIsolation);
  }
  runtime().scheduler.wait(*stream, event->point);
  return finish(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return launch_host_function(stream, [=] { function(data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned int) {
  return launch_host_function(stream, [=] { function(stream, cudaSuccess, data); });
}

}  // extern "C"
