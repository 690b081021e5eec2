#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// A step that draws, over a tensor that it carries from step to step.
struct Drawing {
  std::string name;
  std::function<at::Tensor(at::Tensor& carried, const at::Tensor& x, at::Generator generator)> body;
};

class RandomTest : public ::testing::TestWithParam<Drawing> {};

at::Tensor state_of(at::Generator generator) { return generator.get_state(); }

/// Both generators as they are now.
std::vector<at::Tensor> states(const at::Generator& own) {
  return {state_of(at::detail::getDefaultCPUGenerator()), state_of(own)};
}
void set_states(at::Generator& own, const std::vector<at::Tensor>& states) {
  at::Generator common = at::detail::getDefaultCPUGenerator();
  common.set_state(states[0]);
  own.set_state(states[1]);
}

TEST_P(RandomTest, DrawsWhatTheEagerStepDrawsForAThousandSteps) {
  torch::manual_seed(5);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(11);
  at::Tensor mirror = at::zeros({8}), carried = at::zeros({8});
  Session session;
  session.track("carried", carried).track("generator", generator);
  auto step =
      session.wrap("step", [&](at::Tensor x) { return GetParam().body(carried, x, generator); });
  for (int i = 0; i < 1000; ++i) {
    if (i == 500) torch::manual_seed(77);
    if (i == 700) generator.set_current_seed(78);
    const at::Tensor x = at::rand({8});
    const std::vector<at::Tensor> before = states(generator);
    const at::Tensor expected = GetParam().body(mirror, x, generator);
    const std::vector<at::Tensor> after = states(generator);
    set_states(generator, before);
    ASSERT_TRUE(same_bits(expected, step(x))) << i << step.explain();
    ASSERT_TRUE(same_bits(mirror, carried)) << i;
    ASSERT_TRUE(all_same_bits(after, states(generator))) << i;
  }
  EXPECT_GE(step.stats().replayed + step.stats().audits, 990U) << step.explain();
}

INSTANTIATE_TEST_SUITE_P(
    Ops, RandomTest,
    ::testing::Values(
        Drawing{"dropout",
                [](at::Tensor& c, const at::Tensor& x, at::Generator) {
                  return c.mul_(0.5).add_(at::dropout(x, 0.3, true)).clone();
                }},
        Drawing{"bernoulli",
                [](at::Tensor& c, const at::Tensor& x, at::Generator) {
                  return c.mul_(0.5).add_(at::empty_like(x).bernoulli_(0.4)).clone();
                }},
        Drawing{"bernoulli_of_a_generator",
                [](at::Tensor& c, const at::Tensor& x, at::Generator generator) {
                  return c.mul_(0.5).add_(at::empty_like(x).bernoulli_(0.4, generator)).clone();
                }},
        Drawing{"randn",
                [](at::Tensor& c, const at::Tensor& x, at::Generator) {
                  return c.mul_(0.5).add_(x + at::randn({8})).clone();
                }},
        Drawing{"randn_of_a_generator",
                [](at::Tensor& c, const at::Tensor& x, at::Generator generator) {
                  return c.mul_(0.5).add_(x + at::randn({8}, generator)).clone();
                }},
        Drawing{"both_generators_in_turn",
                [](at::Tensor& c, const at::Tensor& x, at::Generator generator) {
                  const at::Tensor noise = at::rand({8}, generator) + at::randn({3}).sum();
                  return c.mul_(0.5).add_(x * noise).add_(at::rand({8}, generator)).clone();
                }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace steptape::tests
