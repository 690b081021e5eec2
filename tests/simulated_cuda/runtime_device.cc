#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "tests/simulated_cuda/launches.h"
#include "tests/simulated_cuda/runtime.h"

namespace simulated = steptape::tests::simulated;
using simulated::finish;

namespace {

constexpr int kProcessors = 132;
constexpr int kThreadsPerProcessor = 2048;
constexpr int kThreadsPerBlock = 1024;
constexpr int kSharedBytesPerBlock = 48 << 10;
constexpr int kSharedBytesPerProcessor = 228 << 10;

int attribute_of(cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrMultiProcessorCount:
      return kProcessors;
    case cudaDevAttrMaxThreadsPerBlock:
      return kThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return kThreadsPerProcessor;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return kSharedBytesPerBlock;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return kSharedBytesPerProcessor;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return finish(cudaSuccess);
}

// These two work on a device that has failed, too: destructors of LibTorch's rely on it.
cudaError_t cudaGetDevice(int* device) {
  simulated::leave_residue();
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : finish(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return finish(cudaErrorInvalidDevice);
  *properties = {};
  std::strncpy(properties->name, "Simulated", sizeof(properties->name) - 1);
  const std::lock_guard lock(simulated::runtime().mutex);
  properties->totalGlobalMem = simulated::runtime().memory.limit_bytes();
  properties->sharedMemPerBlock = kSharedBytesPerBlock;
  properties->sharedMemPerBlockOptin = kSharedBytesPerProcessor;
  properties->sharedMemPerMultiprocessor = kSharedBytesPerProcessor;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = kThreadsPerProcessor;
  properties->maxBlocksPerMultiProcessor = 32;
  for (int i = 0; i < 3; ++i) properties->maxThreadsDim[i] = i == 2 ? 64 : kThreadsPerBlock;
  for (int i = 0; i < 3; ++i) properties->maxGridSize[i] = i == 0 ? 2147483647 : 65535;
  properties->major = 9;
  properties->multiProcessorCount = kProcessors;
  properties->concurrentKernels = properties->unifiedAddressing = 1;
  properties->canMapHostMemory = properties->streamPrioritiesSupported = 1;
  properties->l2CacheSize = 50 << 20;
  return finish(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute_of(attribute);
  return finish(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int, int) {
  *can_access = 0;
  return finish(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:00:00.0");
  return finish(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return finish(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetLastError() {
  const cudaError_t error = finish(simulated::last_error());
  simulated::last_error() = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return finish(simulated::last_error()); }

// The texts are the real runtime's: it is loaded after this library, and needs no device for them.
const char* cudaGetErrorString(cudaError_t error) {
  static const auto real =
      reinterpret_cast<const char* (*)(cudaError_t)>(dlsym(RTLD_NEXT, "cudaGetErrorString"));
  return real(error);
}

const char* cudaGetErrorName(cudaError_t error) {
  static const auto real =
      reinterpret_cast<const char* (*)(cudaError_t)>(dlsym(RTLD_NEXT, "cudaGetErrorName"));
  return real(error);
}

cudaError_t cudaProfilerStart() { return finish(cudaSuccess); }

cudaError_t cudaProfilerStop() { return finish(cudaSuccess); }

}  // extern "C"
