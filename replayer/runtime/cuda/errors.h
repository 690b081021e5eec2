#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "steptape/error.h"

namespace steptape::replayer::cuda {

/// Throws Error (internal) with CUDA's own words where a call of its runtime failed. An error that
/// the next call would find again is taken back.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(ErrorCode::kInternal, std::string(what) + ": " + cudaGetErrorName(status) + ", " +
                                        cudaGetErrorString(status));
}

}  // namespace steptape::replayer::cuda
