#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "dataset.h"

namespace digits {

/// 64 → 128 → 64 → 10, with what makes replaying a training step less than trivial: running
/// statistics that the step updates and masks that it draws.
class NetImpl : public torch::nn::Module {
 public:
  NetImpl()
      : wide_(register_module("wide", torch::nn::Linear(kSide * kSide, 128))),
        norm_(register_module("norm", torch::nn::BatchNorm1d(128))),
        drop_(register_module("drop", torch::nn::Dropout(0.2))),
        narrow_(register_module("narrow", torch::nn::Linear(128, 64))),
        head_(register_module("head", torch::nn::Linear(64, kClasses))) {}

  at::Tensor forward(const at::Tensor& pixels) {
    auto hidden = drop_->forward(at::relu(norm_->forward(wide_->forward(pixels))));
    return head_->forward(at::relu(narrow_->forward(hidden)));
  }

 private:
  torch::nn::Linear wide_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Dropout drop_;
  torch::nn::Linear narrow_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Net);

}  // namespace digits
