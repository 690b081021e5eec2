#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "recorder/recorder.h"
#include "trace/compare/compare.h"
#include "trace/text/text.h"

namespace steptape::recorder {

/// Two linear layers: fc1 (4 to 8), relu, fc2 (8 to 3).
struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(4, 8));
    fc2 = register_module("fc2", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2->forward(fc1->forward(x).relu()); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Mlp);

/// Every test runs with each of the interceptors.
class RecorderTest : public testing::TestWithParam<Interception> {
 protected:
  RecorderTest() { at::manual_seed(7); }

  Interceptor& chosen() { return interceptor(GetParam()); }

  Recorded record(const StepFunction& step, const std::vector<at::Tensor>& inputs = {}) {
    std::vector<Argument> arguments;
    for (const at::Tensor& input : inputs) arguments.push_back({input, {}, true});
    return recorder::record(step, arguments, objects, chosen());
  }

  /// A recording of a step that returns nothing.
  trace::Recording recording_of(const std::function<void()>& step,
                                const std::vector<at::Tensor>& inputs = {}) {
    return record(
               [&] {
                 step();
                 return std::vector<at::Tensor>{};
               },
               inputs)
        .recording;
  }

  live::Objects objects;
};

#define STEPTAPE_WITH_BOTH_INTERCEPTORS(Fixture)                                                   \
  INSTANTIATE_TEST_SUITE_P(                                                                        \
      Interceptors, Fixture, testing::Values(Interception::kDispatchMode, Interception::kFakeKey), \
      [](const auto& chosen) {                                                                     \
        return std::string(chosen.param == Interception::kFakeKey ? "FakeKey" : "DispatchMode");   \
      })

inline std::vector<std::string> names_of(const trace::Recording& recording) {
  std::vector<std::string> names;
  for (const trace::Op& op : recording.ops) {
    names.push_back(recording.operator_of(op).full_name());
  }
  return names;
}

inline std::string text_of(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& refusal : refusals) text += refusal.text() + "\n";
  return text;
}

/// The first refusal of this code, or null.
inline const Refusal* find(const trace::Recording& recording, RefusalCode code) {
  for (const Refusal& refusal : recording.refusals) {
    if (refusal.code == code) return &refusal;
  }
  return nullptr;
}

/// The position of the first op of this name, or -1.
inline std::int64_t find_op(const trace::Recording& recording, const std::string& full_name) {
  const auto names = names_of(recording);
  const auto found = std::find(names.begin(), names.end(), full_name);
  return found == names.end() ? -1 : found - names.begin();
}

inline const trace::Buffer* find_buffer(const trace::Recording& recording,
                                        const std::string& path) {
  for (const trace::Buffer& buffer : recording.buffers) {
    if (buffer.path == path) return &buffer;
  }
  return nullptr;
}

}  // namespace steptape::recorder
