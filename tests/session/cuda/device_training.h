#pragma once

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <steptape/steptape.h>
#include <torch/cuda.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/session/training.h"

/// Trainings on a CUDA device, each run eagerly and through Steptape from the same seed. The same
/// tests run on a GPU, and on the simulated device where there is none.
namespace steptape::tests {

using DeviceTest = ::testing::Test;

/// On the device, made by the host, so that the same seed gives the same on every device.
inline at::Tensor on_device(const at::Tensor& tensor) { return tensor.to(at::kCUDA); }

inline std::vector<at::Tensor> on_host(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> host;
  for (const at::Tensor& tensor : tensors)
    host.push_back(tensor.defined() ? tensor.detach().cpu().clone() : tensor);
  return host;
}

/// What a training does and leaves; each run makes a new one.
struct DeviceTraining {
  std::shared_ptr<torch::nn::Module> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  /// Arguments of a call, by its number.
  std::function<std::vector<at::Tensor>(int)> inputs;
  std::function<at::Tensor(std::vector<at::Tensor>)> step;
  std::function<void(int)> between = [](int) {};  ///< before a call
};

struct Trained {
  std::vector<at::Tensor> seen;  ///< by the host: results of each call, then all state
  Stats stats;
  std::string text;
};

inline void add_state(const DeviceTraining& training, std::vector<at::Tensor>& seen) {
  for (const at::Tensor& tensor : visible_state(*training.model)) seen.push_back(tensor);
  seen.push_back(at::globalContext().defaultGenerator(at::kCUDA).get_state());
}

enum class How { kEager, kTaped };

inline Trained run_of(const std::function<DeviceTraining()>& make, int calls, How how,
                      const Options& options = quiet()) {
  torch::manual_seed(1);
  torch::cuda::manual_seed(1);
  const DeviceTraining training = make();
  Session session(options);
  session.track("model", training.model);
  if (training.optimizer) session.track("optimizer", training.optimizer);
  auto step = session.wrap(
      "train", [&](std::vector<at::Tensor> inputs) { return training.step(std::move(inputs)); });
  Trained run;
  for (int call = 0; call < calls; ++call) {
    training.between(call);
    std::vector<at::Tensor> inputs = training.inputs(call);
    run.seen.push_back(how == How::kEager ? training.step(inputs) : step(inputs));
  }
  add_state(training, run.seen);
  run.seen = on_host(run.seen);
  run.stats = step.stats();
  run.text = step.explain();
  return run;
}

/// Runs it both ways. What they leave is the same, and at least `replays` calls were replayed.
inline Trained expect_same(const std::function<DeviceTraining()>& make, int calls,
                           std::uint64_t replays, const Options& options = quiet()) {
  const Trained eager = run_of(make, calls, How::kEager);
  Trained taped = run_of(make, calls, How::kTaped, options);
  EXPECT_TRUE(all_same_bits(eager.seen, taped.seen)) << taped.text;
  EXPECT_GE(taped.stats.replayed, replays) << taped.text;
  return taped;
}

inline const DeviceStats& device_of(const Trained& run) {
  static const DeviceStats none;
  return run.stats.variants.empty() ? none : run.stats.variants[0].device;
}

}  // namespace steptape::tests
