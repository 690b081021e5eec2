#pragma once

#include <ATen/core/Tensor.h>

namespace steptape::live {

/// The largest difference between elements of two plain tensors of one shape and dtype, as a share
/// of the largest magnitude in either. 0 where both have the same values, NaN being one of them;
/// infinite where an infinity or a NaN stands against something else, or the shapes differ. Seen by
/// no recorder.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace steptape::live
