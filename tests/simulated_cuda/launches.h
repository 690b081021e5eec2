#pragma once

namespace steptape::tests::simulated {

/// Whether LibTorch's host code launches its kernels for lists of tensors
/// (STEPTAPE_SIMULATED_CUDA_LAUNCHES): they become work that does nothing, with the parameters that
/// a device would get. Otherwise operators do the arithmetic on the host, and launches are refused.
bool keeps_launches();

/// Where they are kept: leaves bytes of chance on the stack below its caller, as CUDA's functions
/// do.
void leave_residue();

}  // namespace steptape::tests::simulated
