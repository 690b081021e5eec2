#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "tests/session/training.h"
#include "tests/session/verify/find_refusal.h"

namespace steptape::tests {
namespace {

Options audited_and_told() {
  Options options;
  options.verify.rate = 1;
  options.on_divergence = OnDivergence::kReport;
  return options;
}

TEST(VerificationTest, AnAuditNamesTheFirstOpThatDiffers) {
  Session session(audited_and_told());
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
  Session session(audited_and_told());
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
  Session session(audited_and_told());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  for (const Batch& batch : make_batches(20)) train(batch.images, batch.labels);
  EXPECT_GE(train.stats().audits, 10U) << train.explain();
  EXPECT_TRUE(train.stats().refusals.empty()) << train.explain();
}

TEST(VerificationTest, WhatReplaysInDoubtHaveMadeIsPutBack) {
  AdamTraining taped({true, 0.25}, torch::optim::AdamOptions(1e-2));
  Options options;
  options.verify.rate = 0.25;
  options.audit_seed = 3;
  options.on_divergence = OnDivergence::kRestore;
  Session session(options);
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  double hidden = 1;
  auto train =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x * hidden, y); });
  const auto state = [&] {
    std::vector<at::Tensor> tensors = copied(visible_state(*taped.model));
    for (const auto& [key, held] : taped.optimizer.state()) {
      const auto& moments = static_cast<torch::optim::AdamParamState&>(*held);
      tensors.push_back(moments.exp_avg().clone());
      tensors.push_back(torch::tensor(moments.step()));
    }
    tensors.push_back(at::detail::getDefaultCPUGenerator().get_state());
    return tensors;
  };
  std::vector<at::Tensor> verified;
  std::uint64_t replays_in_doubt = 0;
  for (const Batch& batch : make_batches(200)) {
    if (train.stats().steps == 60) hidden = 1.5;
    const std::uint64_t audits = train.stats().audits + train.stats().trials;
    train(batch.images, batch.labels);
    if (!train.stats().refusals.empty()) break;
    if (train.stats().audits + train.stats().trials > audits) {
      verified = state();
      replays_in_doubt = 0;
    } else {
      ++replays_in_doubt;
    }
  }
  ASSERT_TRUE(find(train.stats(), RefusalCode::kAuditDiverged)) << train.explain();
  EXPECT_GT(replays_in_doubt, 0U) << "the seed of the audits gives none between the change and one";
  EXPECT_TRUE(all_same_bits(verified, state()));
}

TEST(VerificationTest, StateIsPutBackThoughALookThrows) {
  SgdTraining taped({}, torch::optim::SGDOptions(0.1));
  Options options;
  options.verify.rate = 1;
  options.on_divergence = OnDivergence::kRestore;
  Session session(options);
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  double hidden = 1;
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
    const at::Tensor loss = taped.step(x * hidden, y);
    session.observe(loss, [&](const at::Tensor&) {
      if (hidden != 1) throw std::runtime_error("look");
    });
    return loss;
  });
  const std::vector<Batch> batches = make_batches(12);
  for (int i = 0; i < 10; ++i) train(batches[i].images, batches[i].labels);
  const std::vector<at::Tensor> verified = copied(visible_state(*taped.model));
  hidden = 1.5;
  EXPECT_THROW(train(batches[10].images, batches[10].labels), std::runtime_error);
  ASSERT_TRUE(find(train.stats(), RefusalCode::kAuditDiverged)) << train.explain();
  EXPECT_TRUE(all_same_bits(verified, visible_state(*taped.model)));
}

}  // namespace
}  // namespace steptape::tests
