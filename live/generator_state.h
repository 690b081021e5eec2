#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace steptape::live {

/// The state of a generator as a tensor of its own. Takes the generator's lock.
at::Tensor state_of(const at::Generator& generator);
void set_state(at::Generator generator, const at::Tensor& state);

}  // namespace steptape::live
