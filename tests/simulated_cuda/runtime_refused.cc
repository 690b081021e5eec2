#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/runtime.h"

// What LibTorch's CUDA libraries import beyond what is simulated. Compiled kernels are known by
// name only, so that one that is launched after all can be named in the error.

namespace simulated = steptape::tests::simulated;
using simulated::not_simulated;

namespace {

/// Of each compiled kernel the address of its host stub and its name. Filled while LibTorch's
/// libraries are loaded: some ten thousand entries, so nothing more is done with them then.
std::vector<std::pair<const void*, const char*>>& compiled_kernels() {
  static auto& kernels = *new std::vector<std::pair<const void*, const char*>>;
  return kernels;
}

/// Leaves the device failed: not every launch in LibTorch is checked for an error.
cudaError_t refuse_launch(const void* kernel) {
  const char* name = "unknown";
  for (const auto& [stub, stub_name] : compiled_kernels())
    if (stub == kernel) name = stub_name;
  const std::lock_guard lock(simulated::runtime().mutex);
  simulated::runtime().scheduler.fail();
  return not_simulated((std::string("the launch of kernel ") + name).c_str());
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  compiled_kernels().emplace_back(stub, name);
}

// A launch is refused where it names its kernel; up to there it must look as if it went well.
unsigned int __cudaPushCallConfiguration(dim3, dim3, std::size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return refuse_launch(kernel);
}
cudaError_t cudaLaunchKernel(const void* stub, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return refuse_launch(stub);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* stub, void**) {
  return refuse_launch(stub);
}

#define STEPTAPE_NOT_SIMULATED(name, ...) \
  cudaError_t name(__VA_ARGS__) { return not_simulated(#name); }

STEPTAPE_NOT_SIMULATED(cudaDeviceEnablePeerAccess, int, unsigned int)
STEPTAPE_NOT_SIMULATED(cudaDeviceGetDefaultMemPool, cudaMemPool_t*, int)
STEPTAPE_NOT_SIMULATED(cudaFreeAsync, void*, cudaStream_t)
STEPTAPE_NOT_SIMULATED(cudaFuncGetAttributes, cudaFuncAttributes*, const void*)
STEPTAPE_NOT_SIMULATED(cudaFuncSetAttribute, const void*, cudaFuncAttribute, int)
STEPTAPE_NOT_SIMULATED(cudaGetDriverEntryPointByVersion, const char*, void**, unsigned int,
                       unsigned long long, cudaDriverEntryPointQueryResult*)
STEPTAPE_NOT_SIMULATED(cudaGetSymbolAddress, void**, const void*)
STEPTAPE_NOT_SIMULATED(cudaGraphClone, cudaGraph_t*, cudaGraph_t)
STEPTAPE_NOT_SIMULATED(cudaGraphExecMemcpyNodeSetParams, cudaGraphExec_t, cudaGraphNode_t,
                       const cudaMemcpy3DParms*)
STEPTAPE_NOT_SIMULATED(cudaGraphKernelNodeSetParams, cudaGraphNode_t, const cudaKernelNodeParams*)
STEPTAPE_NOT_SIMULATED(cudaGraphMemcpyNodeGetParams, cudaGraphNode_t, cudaMemcpy3DParms*)
STEPTAPE_NOT_SIMULATED(cudaIpcCloseMemHandle, void*)
STEPTAPE_NOT_SIMULATED(cudaIpcGetEventHandle, cudaIpcEventHandle_t*, cudaEvent_t)
STEPTAPE_NOT_SIMULATED(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*)
STEPTAPE_NOT_SIMULATED(cudaIpcOpenEventHandle, cudaEvent_t*, cudaIpcEventHandle_t)
STEPTAPE_NOT_SIMULATED(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned int)
STEPTAPE_NOT_SIMULATED(cudaMallocAsync, void**, std::size_t, cudaStream_t)
STEPTAPE_NOT_SIMULATED(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
STEPTAPE_NOT_SIMULATED(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, std::size_t)
STEPTAPE_NOT_SIMULATED(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
STEPTAPE_NOT_SIMULATED(cudaMemPoolTrimTo, cudaMemPool_t, std::size_t)
STEPTAPE_NOT_SIMULATED(cudaMemcpyToSymbol, const void*, const void*, std::size_t, std::size_t,
                       cudaMemcpyKind)
STEPTAPE_NOT_SIMULATED(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int*, const void*,
                       int, std::size_t, unsigned int)
STEPTAPE_NOT_SIMULATED(cudaStreamBeginCaptureToGraph, cudaStream_t, cudaGraph_t,
                       const cudaGraphNode_t*, const cudaGraphEdgeData*, std::size_t,
                       cudaStreamCaptureMode)
STEPTAPE_NOT_SIMULATED(cudaStreamUpdateCaptureDependencies, cudaStream_t, cudaGraphNode_t*,
                       const cudaGraphEdgeData*, std::size_t, unsigned int)

#undef STEPTAPE_NOT_SIMULATED

}  // extern "C"
