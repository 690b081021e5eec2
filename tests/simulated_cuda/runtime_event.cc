#include <chrono>
#include <memory>

#include "tests/simulated_cuda/runtime.h"

namespace simulated = steptape::tests::simulated;
using simulated::Event;
using simulated::finish;
using simulated::runtime;
using simulated::Scheduler;

namespace {

Event* event_of(cudaEvent_t handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  return runtime().events.count(event) ? event : nullptr;
}

/// An event that was recorded in a capture marks no point in time.
cudaError_t refuse_captured(const Event& event) {
  if (!event.capture) return cudaSuccess;
  event.capture->is_invalidated = true;
  return cudaErrorCapturedEvent;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned int flags) {
  const std::lock_guard lock(runtime().mutex);
  auto* const event = new Event;
  event->has_timing = (flags & cudaEventDisableTiming) == 0;
  runtime().events.insert(event);
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return finish(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const std::lock_guard lock(runtime().mutex);
  Event* const event = event_of(handle);
  if (!event) return finish(cudaErrorInvalidResourceHandle);
  runtime().events.erase(event);
  delete event;
  return finish(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle,
                                     unsigned int flags) {
  const std::lock_guard lock(runtime().mutex);
  Event* const event = event_of(handle);
  const auto stream = runtime().stream_of(stream_handle);
  if (!event || !stream) return finish(cudaErrorInvalidResourceHandle);
  if (flags == cudaEventRecordExternal) return simulated::not_simulated("cudaEventRecordExternal");
  event->is_recorded = true;
  if (stream->capture) {
    if (stream->capture->is_invalidated) return finish(cudaErrorStreamCaptureInvalidated);
    event->capture = stream->capture;
    event->tail = stream->tail;
    return finish(cudaSuccess);
  }
  event->capture = nullptr;
  event->tail.clear();
  event->reached = std::make_shared<std::chrono::steady_clock::time_point>();
  simulated::Work work;
  work.type = cudaGraphNodeTypeEventRecord;
  work.body = [reached = event->reached](std::span<const std::byte>) {
    *reached = std::chrono::steady_clock::now();
  };
  const cudaError_t error = runtime().submit(stream, std::move(work));
  event->point = {stream, stream->enqueued};
  return finish(error);
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  return cudaEventRecordWithFlags(handle, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::lock_guard lock(runtime().mutex);
  Event* const event = event_of(handle);
  if (!event) return finish(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(*event)) return finish(error);
  if (const auto error = runtime().refuse_unsafe_in_capture()) return finish(error);
  if (!event->is_recorded) return finish(cudaSuccess);
  runtime().scheduler.run_one_towards(event->point);
  return finish(Scheduler::is_reached(event->point) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const std::lock_guard lock(runtime().mutex);
  Event* const event = event_of(handle);
  if (!event) return finish(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(*event)) return finish(error);
  if (const auto error = runtime().refuse_unsafe_in_capture()) return finish(error);
  if (event->is_recorded) runtime().scheduler.run_until(event->point);
  return finish(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard lock(runtime().mutex);
  const Event* const from = event_of(start);
  const Event* const to = event_of(end);
  if (!from || !to || !from->has_timing || !to->has_timing || !from->reached || !to->reached)
    return finish(cudaErrorInvalidResourceHandle);
  if (!Scheduler::is_reached(from->point) || !Scheduler::is_reached(to->point))
    return finish(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(*to->reached - *from->reached).count();
  return finish(cudaSuccess);
}

}  // extern "C"
