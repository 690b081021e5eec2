#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "replayer/runtime/cpu/executor.h"
#include "tests/replayer/awkward.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

class ThreadsTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadsTest() { at::set_num_threads(GetParam()); }
  ~ThreadsTest() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

std::unique_ptr<replayer::Executor> executor_with_threads(const StepBody& body,
                                                          const Tensors& inputs) {
  return replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                      default_generator());
}

Tensors cloned(const Tensors& tensors) {
  Tensors clones;
  for (const at::Tensor& tensor : tensors) clones.push_back(tensor.clone());
  return clones;
}

/// Runs plan and body beside each other, each on its own copy of what the run before it left.
void expect_the_same_bits(replayer::Executor& executor, const StepBody& body, Tensors now,
                          int rounds) {
  Tensors eager = cloned(now);
  for (int round = 0; round < rounds; ++round) {
    const Tensors found = run(executor, now), expected = body(eager);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(same_bits(found[i], expected[i])) << "result " << i << ", round " << round;
    for (std::size_t i = 0; i < now.size(); ++i)
      ASSERT_TRUE(same_bits(now[i], eager[i])) << "input " << i << ", round " << round;
  }
}

/// A perceptron's step as it is below autograd: forward, backward, and Adam without its counters.
/// Inputs: x, target, then weight, its two moments, for each layer.
struct Perceptron {
  std::vector<std::int64_t> widths;
  std::int64_t batch;

  Tensors inputs() const {
    Tensors all = {at::randn({batch, widths.front()}), at::randn({batch, widths.back()})};
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const at::Tensor weight = at::randn({widths[i], widths[i + 1]}) / 4;
      all.insert(all.end(), {weight, at::zeros_like(weight), at::zeros_like(weight)});
    }
    return all;
  }

  StepBody step() const {
    return [layers = widths.size() - 1](const Tensors& x) -> Tensors {
      Tensors activations = {x[0]}, gradients(layers);
      for (std::size_t i = 0; i < layers; ++i)
        activations.push_back(at::relu(activations.back().mm(x[2 + 3 * i])));
      at::Tensor gradient = activations.back() - x[1];
      for (std::size_t i = layers; i-- > 0;) {
        gradient = at::threshold_backward(gradient, activations[i + 1], 0);
        gradients[i] = activations[i].t().mm(gradient);
        if (i > 0) gradient = gradient.mm(x[2 + 3 * i].t());
      }
      for (std::size_t i = 0; i < layers; ++i) {
        x[3 + 3 * i].lerp_(gradients[i], 0.1);
        x[4 + 3 * i].mul_(0.999).addcmul_(gradients[i], gradients[i], 0.001);
        x[2 + 3 * i].addcdiv_(x[3 + 3 * i], x[4 + 3 * i].sqrt().add_(1e-8), -0.01);
      }
      return {gradient.clone()};
    };
  }
};

TEST_P(ThreadsTest, PerceptronsLeaveTheBitsOfTheStep) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 25; ++trial) {
    Perceptron net{{}, static_cast<std::int64_t>(1 + random() % 40)};
    const std::size_t layers = 2 + random() % 6;
    for (std::size_t i = 0; i < layers; ++i)
      net.widths.push_back(static_cast<std::int64_t>(2 + random() % 60));
    auto executor = executor_with_threads(net.step(), net.inputs());
    expect_the_same_bits(*executor, net.step(), net.inputs(), 12);
  }
}

TEST_P(ThreadsTest, WhatNumbersArriveDoesNotMatter) {
  const Perceptron net{{16, 16, 16, 16}, 8};
  auto executor = executor_with_threads(net.step(), net.inputs());
  for (int round = 0; round < 20; ++round) {
    Tensors awkward = net.inputs();
    for (at::Tensor& each : awkward) each = sometimes_awkward(each.sizes().vec());
    expect_the_same_bits(*executor, net.step(), awkward, 3);
  }
}

TEST_P(ThreadsTest, StepsOfAllKinds) {
  for (const NamedBody& each : bodies()) {
    SCOPED_TRACE(each.name);
    auto executor = executor_with_threads(each.body, each.inputs);
    at::manual_seed(7);
    Tensors now = cloned(each.inputs), eager = cloned(each.inputs);
    for (int round = 0; round < 5; ++round) {
      at::manual_seed(round);
      const Tensors found = run(*executor, now);
      at::manual_seed(round);
      const Tensors expected = each.body(eager);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(same_bits(found[i], expected[i])) << "result " << i << ", round " << round;
      for (std::size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(same_bits(now[i], eager[i])) << "input " << i << ", round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadsTest, ::testing::Values(2, 4));

}  // namespace
}  // namespace steptape::tests
