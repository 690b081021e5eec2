#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "../digits/dataset.h"

namespace digits_cnn {

/// Two convolutions, each with batch norm and a maximum over 2 × 2, then dropout and a linear head:
/// 1 × 8 × 8 → 16 × 4 × 4 → 32 × 2 × 2 → 10.
class NetImpl : public torch::nn::Module {
 public:
  NetImpl()
      : conv1_(register_module("conv1", torch::nn::Conv2d(around(1, 16)))),
        norm1_(register_module("norm1", torch::nn::BatchNorm2d(16))),
        conv2_(register_module("conv2", torch::nn::Conv2d(around(16, 32)))),
        norm2_(register_module("norm2", torch::nn::BatchNorm2d(32))),
        drop_(register_module("drop", torch::nn::Dropout(0.3))),
        head_(register_module("head", torch::nn::Linear(32 * 2 * 2, digits::kClasses))) {}

  /// `pixels` as digits::Images holds them, a row an image.
  at::Tensor forward(const at::Tensor& pixels) {
    auto x = pixels.view({-1, 1, digits::kSide, digits::kSide});
    x = at::max_pool2d(at::relu(norm1_->forward(conv1_->forward(x))), 2);
    x = at::max_pool2d(at::relu(norm2_->forward(conv2_->forward(x))), 2);
    return head_->forward(drop_->forward(x.flatten(1)));
  }

 private:
  /// 3 × 3, and the image keeps its size.
  static torch::nn::Conv2dOptions around(std::int64_t from, std::int64_t to) {
    return torch::nn::Conv2dOptions(from, to, 3).padding(1).bias(false);
  }

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d norm1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d norm2_;
  torch::nn::Dropout drop_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Net);

}  // namespace digits_cnn
