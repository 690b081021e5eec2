#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace steptape::live {

/// One entry of an optimizer's state for one parameter: a defined tensor or a host number.
struct StateItem {
  std::string key;  ///< "momentum_buffer", "old_dirs[3]"
  std::variant<at::Tensor, std::int64_t, double> value;
};

/// What `state` holds, in declaration order, undefined tensors left out; empty for a class this
/// build does not know.
std::vector<StateItem> state_items(const torch::optim::OptimizerParamState& state);

/// Where the tensors of a state lie in it, undefined ones too: valid as long as the state is. None
/// where their number may change (LBFGS), which `holds_tensors` is for.
std::optional<std::vector<const at::Tensor*>> tensor_fields(
    const torch::optim::OptimizerParamState& state);

/// Whether its defined tensors are `tensors`, in declaration order. Allocates nothing.
bool holds_tensors(const torch::optim::OptimizerParamState& state,
                   std::span<const c10::TensorImpl* const> tensors);

/// The counter that `step()` of the state's class shows users; null for a class without one.
std::int64_t* step_counter(torch::optim::OptimizerParamState& state);

/// "torch::optim::SGD": the demangled dynamic type.
std::string type_name(const torch::optim::Optimizer& optimizer);

}  // namespace steptape::live
