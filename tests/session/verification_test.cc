#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

const Refusal* find(const Stats& stats, RefusalCode code) {
  for (const CountedRefusal& counted : stats.refusals) {
    if (counted.refusal.code == code) return &counted.refusal;
  }
  return nullptr;
}

Options audited() {
  Options options;
  options.verify.rate = 1;
  options.on_divergence = OnDivergence::kReport;
  return options;
}

TEST(VerificationTest, AnAuditNamesTheFirstOpThatDiffers) {
  Session session(audited());
  double hidden = 2;
  auto step = session.wrap("step", [&](at::Tensor x) {
    const at::Tensor shifted = x + 1;
    return at::tanh(shifted * hidden).sum();
  });
  for (int i = 0; i < 8; ++i) step(at::rand({4}));
  EXPECT_FALSE(find(step.stats(), RefusalCode::kAuditDiverged)) << step.explain();
  hidden = 3;
  step(at::rand({4}));
  const Stats stats = step.stats();
  const Refusal* refusal = find(stats, RefusalCode::kAuditDiverged);
  ASSERT_TRUE(refusal) << step.explain();
  EXPECT_EQ(refusal->op.substr(0, 9), "aten::mul") << refusal->text();
  EXPECT_GT(refusal->op_index, 0);
}

TEST(VerificationTest, AnAuditNamesTheFirstOpThatTheEagerStepDoesNotDo) {
  Session session(audited());
  bool twisted = false;
  auto step = session.wrap("step", [&](at::Tensor x) {
    const at::Tensor shifted = x + 1;
    return (twisted ? at::sin(shifted) : at::tanh(shifted)).sum();
  });
  for (int i = 0; i < 8; ++i) step(at::rand({4}));
  twisted = true;
  step(at::rand({4}));
  const Stats stats = step.stats();
  const Refusal* refusal = find(stats, RefusalCode::kAuditDiverged);
  ASSERT_TRUE(refusal) << step.explain();
  EXPECT_EQ(refusal->op, "aten::tanh") << refusal->text();
  EXPECT_NE(refusal->message.find("aten::sin"), std::string::npos) << refusal->text();
}

TEST(VerificationTest, AWholeTrainingStepIsAuditedAgainAndAgain) {
  AdamTraining taped({true, 0.25}, torch::optim::AdamOptions(1e-3));
  Session session(audited());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(20)) train(batch.images, batch.labels);
  EXPECT_GE(train.stats().audits, 10U) << train.explain();
  EXPECT_TRUE(train.stats().refusals.empty()) << train.explain();
}

}  // namespace
}  // namespace steptape::tests
