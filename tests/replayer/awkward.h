#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace steptape::tests {

using Tensors = std::vector<at::Tensor>;

/// Every third element is one that arithmetic treats in its own way, each time at other places, so
/// that they meet each other.
at::Tensor awkward(at::IntArrayRef sizes);

/// Half of them by `awkward`.
at::Tensor sometimes_awkward(at::IntArrayRef sizes);

}  // namespace steptape::tests
