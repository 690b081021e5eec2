#include "live/fields.h"

namespace steptape::live {
namespace {

// Explicit instantiation may name private members ([temp.spec.general]): each of these gives a
// function that knows one of them.
template <typename Tag, auto kMember>
struct OpenedModule {
  friend auto& open_module(Tag, const torch::nn::Module& module) { return module.*kMember; }
};

struct Parameters {};
struct Buffers {};
struct Children {};
auto& open_module(Parameters, const torch::nn::Module& module);
auto& open_module(Buffers, const torch::nn::Module& module);
auto& open_module(Children, const torch::nn::Module& module);
template struct OpenedModule<Buffers, &torch::nn::Module::buffers_>;
template struct OpenedModule<Children, &torch::nn::Module::children_>;
template struct OpenedModule<Parameters, &torch::nn::Module::parameters_>;

}  // namespace

const Tensors& parameters_of(const torch::nn::Module& module) {
  return open_module(Parameters{}, module);
}
const Tensors& buffers_of(const torch::nn::Module& module) {
  return open_module(Buffers{}, module);
}
const SubModules& sub_modules_of(const torch::nn::Module& module) {
  return open_module(Children{}, module);
}

}  // namespace steptape::live
