#pragma once

#include <ATen/core/Tensor.h>

namespace steptape::live {

/// Whether an element is an infinity or a NaN. Tensors of integers, and those that are not plain or
/// not on the CPU, have none. Calls no operator where the elements lie one after the other.
bool has_nonfinite(const at::Tensor& tensor);

}  // namespace steptape::live
