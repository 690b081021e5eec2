#include "live/module_fields.h"

namespace steptape::live {
namespace {

// Explicit instantiation may name private members ([temp.spec.general]): each of these gives a
// function that knows one of them.
template <typename Tag, auto kMember>
struct Opened {
  friend auto& open(Tag, const torch::nn::Module& module) { return module.*kMember; }
};

struct Parameters {};
struct Buffers {};
struct Children {};
auto& open(Parameters, const torch::nn::Module& module);
auto& open(Buffers, const torch::nn::Module& module);
auto& open(Children, const torch::nn::Module& module);
template struct Opened<Buffers, &torch::nn::Module::buffers_>;
template struct Opened<Children, &torch::nn::Module::children_>;
template struct Opened<Parameters, &torch::nn::Module::parameters_>;

}  // namespace

const Tensors& parameters_of(const torch::nn::Module& module) { return open(Parameters{}, module); }
const Tensors& buffers_of(const torch::nn::Module& module) { return open(Buffers{}, module); }
const SubModules& sub_modules_of(const torch::nn::Module& module) {
  return open(Children{}, module);
}

}  // namespace steptape::live
