#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "digits/outcome.h"

/// What a training with Adam or one of its kin holds besides its losses, by the paths of a session
/// that tracks "model" and "optimizer". `State` is torch::optim::AdamParamState or the like.
namespace examples {

/// Parameters, module buffers and moments: all that a trace saved with its state holds as tensors.
template <typename State>
void add_tensors(digits::Outcome& outcome, const torch::nn::Module& model,
                 const torch::optim::Optimizer& optimizer) {
  for (const auto& parameter : model.named_parameters()) {
    const auto path = "model." + parameter.key();
    const auto& state =
        static_cast<const State&>(*optimizer.state().at(parameter.value().unsafeGetTensorImpl()));
    outcome.add_tensor(path, parameter.value());
    outcome.add_tensor("optimizer.state[" + path + "].exp_avg", state.exp_avg());
    outcome.add_tensor("optimizer.state[" + path + "].exp_avg_sq", state.exp_avg_sq());
  }
  for (const auto& buffer : model.named_buffers()) {
    outcome.add_tensor("model." + buffer.key(), buffer.value());
  }
}

/// Step counters, which are host numbers and stand for themselves as tensors of no dimension, and
/// the state of the process's random generator.
template <typename State>
void add_host_state(digits::Outcome& outcome, const torch::nn::Module& model,
                    const torch::optim::Optimizer& optimizer) {
  for (const auto& parameter : model.named_parameters()) {
    const auto& state =
        static_cast<const State&>(*optimizer.state().at(parameter.value().unsafeGetTensorImpl()));
    outcome.add_tensor("optimizer.state[model." + parameter.key() + "].step",
                       at::scalar_tensor(state.step(), at::kLong));
  }
  outcome.add_tensor("generator.default", at::detail::getDefaultCPUGenerator().get_state());
}

}  // namespace examples
