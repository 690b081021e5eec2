#include "tests/simulated_cuda/runtime.h"

// What LibTorch's CUDA libraries import beyond what is simulated.

using steptape::tests::simulated::not_simulated;

extern "C" {

#define STEPTAPE_NOT_SIMULATED(name, ...) \
  cudaError_t name(__VA_ARGS__) { return not_simulated(#name); }

STEPTAPE_NOT_SIMULATED(cudaDeviceEnablePeerAccess, int, unsigned int)
STEPTAPE_NOT_SIMULATED(cudaDeviceGetDefaultMemPool, cudaMemPool_t*, int)
STEPTAPE_NOT_SIMULATED(cudaFreeAsync, void*, cudaStream_t)
STEPTAPE_NOT_SIMULATED(cudaGetDriverEntryPointByVersion, const char*, void**, unsigned int,
                       unsigned long long, cudaDriverEntryPointQueryResult*)
STEPTAPE_NOT_SIMULATED(cudaGetSymbolAddress, void**, const void*)
STEPTAPE_NOT_SIMULATED(cudaGraphClone, cudaGraph_t*, cudaGraph_t)
STEPTAPE_NOT_SIMULATED(cudaGraphExecMemcpyNodeSetParams, cudaGraphExec_t, cudaGraphNode_t,
                       const cudaMemcpy3DParms*)
STEPTAPE_NOT_SIMULATED(cudaGraphKernelNodeSetParams, cudaGraphNode_t, const cudaKernelNodeParams*)
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
STEPTAPE_NOT_SIMULATED(cudaStreamBeginCaptureToGraph, cudaStream_t, cudaGraph_t,
                       const cudaGraphNode_t*, const cudaGraphEdgeData*, std::size_t,
                       cudaStreamCaptureMode)
STEPTAPE_NOT_SIMULATED(cudaStreamUpdateCaptureDependencies, cudaStream_t, cudaGraphNode_t*,
                       const cudaGraphEdgeData*, std::size_t, unsigned int)

#undef STEPTAPE_NOT_SIMULATED

}  // extern "C"
