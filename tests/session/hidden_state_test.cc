#include <gtest/gtest.h>

#include <optional>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// A step that prunes weights by a mask which belongs to nobody but the one who prunes.
class HiddenStateTest : public ::testing::Test {
 protected:
  HiddenStateTest() { session_.track("model", model_).track("optimizer", optimizer_); }

  void prune() {
    const torch::NoGradGuard no_grad;
    model_->fc1->weight.mul_(*mask_);
  }

  Net model_;
  torch::optim::SGD optimizer_{model_->parameters(), torch::optim::SGDOptions(0.1)};
  std::optional<at::Tensor> mask_ = at::ones({32, 64});
  Session session_{quiet()};
};

TEST_F(HiddenStateTest, EndsThePlanWhenItDies) {
  auto step = session_.wrap("prune", [this] { prune(); });
  for (int i = 0; i < 6; ++i) step();
  ASSERT_GE(step.stats().replayed, 1U) << step.explain();
  const at::Tensor expected = model_->fc1->weight.detach().clone() * 0.5;
  mask_ = at::full({32, 64}, 0.5);
  step();
  EXPECT_EQ(step.stats().last_verdict.path, "optimizer.<unnamed 1>") << step.explain();
  EXPECT_EQ(step.stats().last_verdict.expected, "alive");
  EXPECT_EQ(step.stats().last_verdict.kind, GuardKind::kAlive);
  EXPECT_TRUE(same_bits(model_->fc1->weight.detach(), expected));
}

}  // namespace
}  // namespace steptape::tests
