#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/session/training.h"

/// What crosses the border of a step in unusual ways. Each of these once went wrong without a word.
namespace steptape::tests {
namespace {

bool has(const Stats& stats, RefusalCode code) {
  return std::any_of(stats.refusals.begin(), stats.refusals.end(),
                     [&](const CountedRefusal& counted) { return counted.refusal.code == code; });
}

TEST(BorderTest, AGradientOfAnArgumentIsMadeAnew) {
  torch::nn::Linear model(4, 4);
  Session session(quiet());
  session.track("model", model);
  auto step = session.wrap("input_gradient", [&](at::Tensor x) {
    model->zero_grad();
    model(x).pow(2).mean().backward();
    return x.grad();
  });
  for (int i = 0; i < 8; ++i) {
    const at::Tensor x = at::rand({3, 4}).requires_grad_();
    const at::Tensor result = step(x);
    EXPECT_TRUE(result.is_same(x.grad())) << i;
    const at::Tensor again = x.detach().clone().requires_grad_();
    const at::Tensor expected =
        torch::autograd::grad({model(again).pow(2).mean()}, {again}).front();
    EXPECT_TRUE(same_bits(x.grad(), expected)) << i;
  }
  EXPECT_GT(step.stats().replayed, 3U) << step.explain();
}

TEST(BorderTest, AGradientThatAnArgumentHasAlreadyIsRefused) {
  Session session(quiet());
  auto step = session.wrap("adds_up", [](at::Tensor x) { x.pow(2).mean().backward(); });
  const at::Tensor x = at::rand({3, 4}).requires_grad_();
  for (int i = 0; i < 6; ++i) step(x);
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_TRUE(has(step.stats(), RefusalCode::kReboundTensor)) << step.explain();
  const at::Tensor expected = x.detach() * 2 / 12 * 6;
  EXPECT_TRUE(at::allclose(x.grad(), expected));
}

TEST(BorderTest, AGraphFromBeforeTheStepIsRefused) {
  const at::Tensor eager = at::rand({3, 4}).requires_grad_();
  const at::Tensor taped = eager.detach().clone().requires_grad_();
  Session session(quiet());
  auto step = session.wrap("outer", [&](at::Tensor x) { x.pow(2).mean().backward(); });
  for (int i = 0; i < 6; ++i) {
    (eager * (i + 1.0)).pow(2).mean().backward();
    step(taped * (i + 1.0));
    EXPECT_TRUE(same_bits(eager.grad(), taped.grad())) << i;
  }
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_TRUE(has(step.stats(), RefusalCode::kUnconsumedGraph)) << step.explain();
}

TEST(BorderTest, AReplacedModuleAtTheAddressOfADeadOneIsNoticed) {
  struct Model : torch::nn::Module {
    torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  };
  auto model = std::make_shared<Model>();
  Session session(quiet());
  session.track("model", model);
  auto step = session.wrap("drop", [&](at::Tensor x) { return model->dropout(x); });
  for (int i = 0; i < 20; ++i) {
    if (i % 6 == 5) {
      model->dropout = nullptr;
      model->dropout = model->replace_module("dropout", torch::nn::Dropout(i == 5 ? 0.9 : 0.1));
    }
    const at::Tensor x = at::ones({64});
    torch::manual_seed(i);
    const at::Tensor expected = torch::dropout(x, model->dropout->options.p(), true);
    torch::manual_seed(i);
    EXPECT_TRUE(same_bits(step(x), expected)) << i;
  }
  EXPECT_GE(step.stats().replayed, 6U) << step.explain();
}

TEST(BorderTest, AGradientOfAFrozenParameterIsFollowed) {
  const auto make = [] { return SgdTraining({}, torch::optim::SGDOptions(0.1)); };
  SgdTraining eager = make(), taped = make();
  for (SgdTraining* training : {&eager, &taped}) {
    training->model->forward(at::ones({2, 64})).sum().backward();
    for (at::Tensor& parameter : training->model->parameters()) parameter.requires_grad_(false);
  }
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto step = session.wrap("update", [&] { taped.optimizer.step(); });
  std::vector<at::Tensor> held;
  for (int i = 0; i < 10; ++i) {
    for (SgdTraining* training : {&eager, &taped}) {
      for (at::Tensor& parameter : training->model->parameters()) {
        held.push_back(parameter.grad());
        parameter.mutable_grad() = torch::full_like(parameter, 0.5 * i);
      }
    }
    eager.optimizer.step();
    step();
    EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << i;
  }
}

TEST(BorderTest, AnArgumentWhoseShapeTheStepChangesIsRefused) {
  Session session(quiet());
  auto step = session.wrap("unsqueeze", [](at::Tensor x) {
    x.unsqueeze_(0);
    return x.sum(1);
  });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({3, 4});
    step(x);
    EXPECT_EQ(x.dim(), 3);
  }
  EXPECT_TRUE(has(step.stats(), RefusalCode::kReboundTensor)) << step.explain();
}

TEST(BorderTest, AResultThatViewsAParameterIsAnObjectOfItsOwn) {
  torch::nn::Linear model(4, 4);
  Session session(quiet());
  session.track("model", model);
  auto step = session.wrap("peek", [&](at::Tensor x) {
    return std::make_tuple(model->weight.detach(), model->weight, x.detach());
  });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({3});
    auto [view, same, input] = step(x);
    EXPECT_TRUE(same.is_same(model->weight));
    EXPECT_TRUE(view.is_alias_of(model->weight));
    EXPECT_FALSE(view.requires_grad());
    view.unsqueeze_(0);
    input.unsqueeze_(0);
    EXPECT_EQ(model->weight.dim(), 2);
    EXPECT_EQ(x.dim(), 1);
    const auto version = model->weight._version();
    view.mul_(1.5);
    EXPECT_GT(model->weight._version(), version);
  }
  EXPECT_EQ(step.stats().replayed, 3U) << step.explain();
}

TEST(BorderTest, OneTensorReturnedTwiceIsOneObject) {
  Session session(quiet());
  auto step = session.wrap("twice", [](at::Tensor x) {
    at::Tensor y = x * 2;
    return std::make_pair(y, y);
  });
  for (int i = 0; i < 6; ++i) {
    auto [a, b] = step(at::rand({3}));
    EXPECT_TRUE(a.is_same(b));
  }
  EXPECT_EQ(step.stats().replayed, 3U) << step.explain();
}

TEST(BorderTest, ANewLeafAsAResultIsRefused) {
  Session session(quiet());
  auto step = session.wrap("leaf", [](at::Tensor x) { return x.mul(2).requires_grad_(); });
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(step(at::rand({3})).requires_grad());
  EXPECT_TRUE(has(step.stats(), RefusalCode::kUnconsumedGraph)) << step.explain();
}

TEST(BorderTest, AWrappedNumberAsAnArgumentIsAnotherArgument) {
  Session session(quiet());
  auto step = session.wrap("promote", [](at::Tensor x, at::Tensor y) { return x * y; });
  const at::Tensor x = at::rand({3});
  for (int i = 0; i < 8; ++i) {
    at::Tensor y = at::scalar_tensor(0.1, at::kDouble);
    y.unsafeGetTensorImpl()->set_wrapped_number(i < 5);
    EXPECT_TRUE(same_bits(step(x, y), x * y)) << i;
  }
}

TEST(BorderTest, AnArgumentOverMemoryThatTheStepWritesIsNoticed) {
  torch::nn::Linear model(4, 4);
  Session session(quiet());
  session.track("model", model);
  auto step = session.wrap("write", [&](at::Tensor x) {
    const torch::NoGradGuard no_grad;
    model->weight.add_(x, 0.5);
  });
  for (int i = 0; i < 6; ++i) step(at::rand({4, 4}).t());
  EXPECT_EQ(step.stats().replayed, 3U) << step.explain();
  EXPECT_ANY_THROW(step(model->weight.detach().t()));
  EXPECT_FALSE(step.stats().last_verdict);
}

TEST(BorderTest, NamedAndInferenceTensorsAreNotReplayedOver) {
  Session session(quiet());
  auto step = session.wrap("sum", [](at::Tensor x) { return x.sum(0); });
  for (int i = 0; i < 5; ++i) step(at::rand({3, 4}));
  EXPECT_EQ(step.stats().replayed, 2U) << step.explain();
  at::Tensor frozen;
  {
    const c10::InferenceMode inference;
    frozen = at::rand({3, 4});
  }
  step(frozen);
  EXPECT_EQ(step.stats().last_verdict.path, "inputs[0].is_inference");
}

TEST(BorderTest, AHostTensorTooLargeToKeepIsRefused) {
  std::vector<float> large((std::size_t{65} << 20) / sizeof(float), 1.0F);
  Session session(quiet());
  auto step = session.wrap("blob", [&](at::Tensor x) {
    return x + torch::from_blob(large.data(), {static_cast<std::int64_t>(large.size())}).sum();
  });
  for (int i = 0; i < 4; ++i) step(at::rand({3}));
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_TRUE(has(step.stats(), RefusalCode::kHostTensorVaries)) << step.explain();
}

}  // namespace
}  // namespace steptape::tests
