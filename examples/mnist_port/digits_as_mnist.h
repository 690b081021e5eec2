#pragma once

#include <ATen/ops/upsample_bilinear2d.h>
#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <optional>

#include "../digits/dataset.h"

/// The digits as LibTorch's MNIST example wants them: a torch::data data set of single images of
/// 1 × 28 × 28, so that the example's model and loop stay as they are.
class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  enum class Mode { kTrain, kTest };

  explicit Digits(const char* csv, Mode mode = Mode::kTrain) {
    auto halves = digits::split(digits::read(csv));
    images_ = mode == Mode::kTrain ? halves.train : halves.test;
    const auto square = images_.pixels.view({-1, 1, digits::kSide, digits::kSide});
    images_.pixels = at::upsample_bilinear2d(square, {28, 28}, /*align_corners=*/false);
  }

  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images_.pixels[i], images_.labels[i]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.count()); }

 private:
  digits::Images images_;
};
