#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

/// What is registered with a module, read in place. The accessors of torch::nn::Module copy names
/// and handles.
namespace steptape::live {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using SubModules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

const Tensors& parameters_of(const torch::nn::Module& module);
const Tensors& buffers_of(const torch::nn::Module& module);
const SubModules& sub_modules_of(const torch::nn::Module& module);

}  // namespace steptape::live
