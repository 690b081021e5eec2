#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>

#include "trace/dtype.h"

namespace steptape::live {

/// The state of a generator as a tensor of its own. Takes the generator's lock.
at::Tensor state_of(const at::Generator& generator);
void set_state(at::Generator generator, const at::Tensor& state);

/// What a trace calls a device's default generator: "default" for the CPU's, "default.cuda:0".
std::string default_generator_path(const trace::Device& device);
at::Generator default_generator(const trace::Device& device);

}  // namespace steptape::live
