#pragma once

namespace steptape::tests::simulated {

/// Gives operators that LibTorch has for CUDA alone, and that its own layers choose by the device
/// (recurrent cells, the gradient of RMS normalisation), the CPU kernels to compute with.
void register_cpu_counterparts();

}  // namespace steptape::tests::simulated
