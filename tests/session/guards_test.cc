#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_lazy_clone.h>
#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// A taped training in replay beside an eager twin: whatever a test changes in both, they stay
/// equal, and the verdict names what changed.
class GuardsTest : public ::testing::Test {
 protected:
  GuardsTest()
      : eager_({true, 0.25}, torch::optim::SGDOptions(0.1).momentum(0.9)),
        taped_({true, 0.25}, torch::optim::SGDOptions(0.1).momentum(0.9)),
        session_(quiet()) {
    session_.track("model", taped_.model).track("optimizer", taped_.optimizer);
    for (const Batch& batch : make_batches(7)) step_both(batch);
    EXPECT_GE(train_.stats().replayed, 1U) << train_.explain();
  }

  void step_both(const Batch& batch) {
    at::Tensor images = batch.images.clone(), labels = batch.labels.clone();
    step_both(batch.images, batch.labels, images, labels);
  }

  void step_both(const at::Tensor& eager_images, const at::Tensor& eager_labels,
                 const at::Tensor& images, const at::Tensor& labels) {
    torch::manual_seed(++seed_);
    const at::Tensor expected = eager_.step(eager_images, eager_labels);
    torch::manual_seed(seed_);
    const at::Tensor found = train_(images, labels);
    EXPECT_TRUE(same_bits(expected, found));
    EXPECT_TRUE(all_same_bits(visible_state(*eager_.model), visible_state(*taped_.model)));
  }

  /// One step in which a guard must fail, at `path`.
  void expect_mismatch(const std::string& path) {
    const std::uint64_t replayed = train_.stats().replayed;
    step_both(make_batches(1)[0]);
    EXPECT_EQ(train_.stats().replayed, replayed);
    EXPECT_EQ(train_.stats().last_verdict.path, path) << train_.stats().last_verdict.text();
  }

  void expect_replay() {
    const std::uint64_t replayed = train_.stats().replayed;
    step_both(make_batches(1)[0]);
    EXPECT_EQ(train_.stats().replayed, replayed + 1) << train_.explain();
  }

  void expect_replay_or_audit() {
    const Stats before = train_.stats();
    step_both(make_batches(1)[0]);
    const Stats after = train_.stats();
    EXPECT_EQ(after.replayed + after.audits, before.replayed + before.audits + 1)
        << train_.explain();
  }

  template <typename Change>
  void both(Change change) {
    change(eager_);
    change(taped_);
  }

  SgdTraining eager_, taped_;
  Session session_;
  std::uint64_t seed_ = 100;
  Step<at::Tensor(at::Tensor, at::Tensor)> train_ = session_.wrap(
      "train",
      [this](at::Tensor images, at::Tensor labels) { return taped_.step(images, labels); });
};

torch::optim::SGDOptions& options_of(SgdTraining& training) {
  return static_cast<torch::optim::SGDOptions&>(training.optimizer.param_groups()[0].options());
}

TEST_F(GuardsTest, AHyperparameterTakesANewValueAfterOneAudit) {
  both([](SgdTraining& training) { options_of(training).lr(0.05).momentum(0.5); });
  step_both(make_batches(1)[0]);
  EXPECT_EQ(train_.stats().audits, 1U);
  both([](SgdTraining& training) { options_of(training).lr(0.2).momentum(0.7); });
  expect_replay();
  EXPECT_EQ(train_.stats().variants.size(), 1U) << train_.explain();
}

TEST_F(GuardsTest, AHyperparameterThatSwitchesABranchIsNoticed) {
  both([](SgdTraining& training) { options_of(training).weight_decay(0.1); });
  expect_mismatch("optimizer.param_groups[0].weight_decay");
  for (const Batch& batch : make_batches(4)) step_both(batch);
  EXPECT_EQ(train_.stats().variants.size(), 2U) << train_.explain();
  both([](SgdTraining& training) { options_of(training).weight_decay(0); });
  expect_replay();
}

TEST_F(GuardsTest, EvalModeIsNoticed) {
  both([](SgdTraining& training) { training.model->dropout->eval(); });
  expect_mismatch("model.dropout.training");
}

TEST_F(GuardsTest, AnotherBatchSizeIsNoticed) {
  const Batch batch = make_batches(1, 9)[0];
  step_both(batch);
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0].size(0)");
  EXPECT_EQ(train_.stats().last_verdict.expected, "16");
  EXPECT_EQ(train_.stats().last_verdict.found, "9");
  expect_replay();
}

TEST_F(GuardsTest, AnotherStrideIsNoticed) {
  const Batch batch = make_batches(1)[0];
  const at::Tensor strided = batch.images.t().contiguous().t();
  step_both(strided, batch.labels, strided.clone(at::MemoryFormat::Preserve), batch.labels);
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0].stride(0)");
}

TEST_F(GuardsTest, AnotherAddressRemainderIsNoticed) {
  const Batch batch = make_batches(1)[0];
  const at::Tensor shifted = at::empty({16 * 64 + 1}).narrow(0, 1, 16 * 64).view({16, 64});
  shifted.copy_(batch.images);
  step_both(shifted, batch.labels, shifted, batch.labels);
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0].data_ptr modulo 64");
}

TEST_F(GuardsTest, AnInputThatRequiresGradIsNoticed) {
  const Batch batch = make_batches(1)[0];
  const at::Tensor a = batch.images.clone().requires_grad_(),
                   b = batch.images.clone().requires_grad_();
  step_both(a, batch.labels, b, batch.labels);
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0].requires_grad");
}

TEST_F(GuardsTest, AnUndefinedInputIsNoticed) {
  EXPECT_THROW(train_(at::Tensor(), at::Tensor()), c10::Error);
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0]");
  step_both(make_batches(1)[0]);  // as in eager code, zero_grad had run when the forward raised
  expect_replay();
}

TEST_F(GuardsTest, AGradientThatIsNoneIsNoticed) {
  both([](SgdTraining& training) { training.model->fc1->weight.mutable_grad().reset(); });
  expect_mismatch("model.fc1.weight.grad");
}

TEST_F(GuardsTest, AFrozenParameterIsNoticed) {
  both([](SgdTraining& training) { training.model->fc1->bias.set_requires_grad(false); });
  expect_mismatch("model.fc1.bias.requires_grad");
}

TEST_F(GuardsTest, AHookThatIsAddedOrRemovedIsNoticed) {
  std::vector<unsigned> hooks;
  both([&](SgdTraining& training) {
    hooks.push_back(
        training.model->fc1->weight.register_hook([](at::Tensor g) { return g * 0.5; }));
  });
  expect_mismatch("model.fc1.weight (hooks)");
  for (const Batch& batch : make_batches(3)) step_both(batch);
  expect_replay();
  eager_.model->fc1->weight.remove_hook(hooks[0]);
  taped_.model->fc1->weight.remove_hook(hooks[1]);
  // not the plan from before the hook: LibTorch keeps the emptied list
  expect_mismatch("model.fc1.weight (hooks)");
}

TEST_F(GuardsTest, AParameterThatMovedIsFollowed) {
  both([](SgdTraining& training) {
    const torch::NoGradGuard no_grad;
    training.model->fc1->weight.set_data(training.model->fc1->weight.clone());
  });
  step_both(make_batches(1)[0]);
  EXPECT_EQ(train_.stats().audits, 1U) << train_.explain();
  expect_replay();
  EXPECT_EQ(train_.stats().variants[0].rebinds, 1U);
}

TEST_F(GuardsTest, ALazyCloneKeepsWhatItWasMadeOf) {
  const torch::NoGradGuard no_grad;
  at::Tensor saved;
  {
    const at::AutoDispatchBelowAutograd below;
    saved = at::_lazy_clone(taped_.model->fc1->weight);
  }
  const at::Tensor before = taped_.model->fc1->weight.detach().clone();
  {
    const at::AutoGradMode grad(true);
    expect_mismatch("model.fc1.weight");
    EXPECT_EQ(train_.stats().last_verdict.kind, GuardKind::kMemory);
    expect_replay_or_audit();
  }
  EXPECT_TRUE(same_bits(saved, before));
}

TEST_F(GuardsTest, MemoryThatMovesInEachCallIsAuditedEverMoreRarely) {
  constexpr int kCalls = 20;
  const std::uint64_t replayed = train_.stats().replayed;
  for (int i = 0; i < kCalls; ++i) {
    both([](SgdTraining& training) {
      const torch::NoGradGuard no_grad;
      training.model->fc1->weight.set_data(training.model->fc1->weight.clone());
    });
    step_both(make_batches(1)[0]);
  }
  EXPECT_EQ(train_.stats().audits, 5U) << train_.explain();  // calls 1, 2, 4, 8, 16
  EXPECT_EQ(train_.stats().replayed, replayed + kCalls - 5);
  EXPECT_NE(train_.explain().find("took up moved memory of tracked tensors 20×"),
            std::string::npos);
}

TEST_F(GuardsTest, AParameterOfAnotherDtypeIsNoticed) {
  const auto to_double = [](SgdTraining& training) {
    training.model->fc2->bias.set_data(at::zeros({10}, at::kDouble));
  };
  to_double(taped_);
  const Batch batch = make_batches(1)[0];
  EXPECT_ANY_THROW(train_(batch.images, batch.labels));
  EXPECT_EQ(train_.stats().last_verdict.path, "model.fc2.bias.dtype");
}

TEST_F(GuardsTest, AnotherThreadCountIsNoticed) {
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  expect_mismatch("ambient.threads");
  at::set_num_threads(threads);
  expect_replay();
}

TEST_F(GuardsTest, GradModeIsNoticed) {
  const Batch batch = make_batches(1)[0];
  const torch::NoGradGuard no_grad;
  EXPECT_ANY_THROW(train_(batch.images, batch.labels));
  EXPECT_EQ(train_.stats().last_verdict.path, "ambient.grad_mode");
}

TEST_F(GuardsTest, ARegisteredModuleThatIsReplacedIsNoticed) {
  both([](SgdTraining& training) {
    training.model->dropout = training.model->replace_module("dropout", torch::nn::Dropout(0.5));
  });
  expect_mismatch("model.dropout");
}

TEST_F(GuardsTest, InvalidateDropsThePlan) {
  session_.invalidate("the test says so");
  const std::uint64_t recorded = train_.stats().recorded;
  step_both(make_batches(1)[0]);
  EXPECT_EQ(train_.stats().recorded, recorded + 1);
  EXPECT_NE(session_.explain().find("the test says so"), std::string::npos);
}

TEST(GuardsOnFactsTest, AHostArgumentIsGuardedByValue) {
  Session session(quiet());
  auto step = session.wrap("scale", [](at::Tensor x, double factor) { return x * factor; });
  const at::Tensor x = at::rand({8});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(step(x, 0.5), x * 0.5));
  EXPECT_EQ(step.stats().replayed, 2U) << step.explain();
  EXPECT_TRUE(same_bits(step(x, 0.25), x * 0.25));
  EXPECT_EQ(step.stats().last_verdict.path, "inputs[1]");
}

/// A look into the optimizer's map may leave an empty entry, which eager SGD never reads.
TEST(GuardsOnFactsTest, AnEmptyStateOfAnOptimizerIsNoticed) {
  SgdTraining taped({}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap(
      "train", [&](const at::Tensor& x, const at::Tensor& y) { return taped.step(x, y); });
  const Batch batch = make_batches(1)[0];
  for (int i = 0; i < 6; ++i) train(batch.images, batch.labels);
  ASSERT_GE(train.stats().replayed, 1U) << train.explain();
  EXPECT_EQ(taped.optimizer.state()[taped.model->fc1->weight.unsafeGetTensorImpl()], nullptr);
  train(batch.images, batch.labels);
  EXPECT_EQ(train.stats().last_verdict.text(), "optimizer.state[model.fc1.weight]: none → a state");
  const std::uint64_t replayed = train.stats().replayed;
  for (int i = 0; i < 6; ++i) train(batch.images, batch.labels);
  EXPECT_GT(train.stats().replayed, replayed) << train.explain();
}

/// A declared function may end what the step needs.
TEST(GuardsOnFactsTest, AModelThatDiesInADeclaredFunctionIsAnError) {
  auto model = std::make_shared<NetImpl>();
  bool ends = false;
  Session session(quiet());
  session.track("model", model);
  session.guard("ends", [&] {
    if (ends) model = nullptr;
    return 0;
  });
  auto step =
      session.wrap("forward", [&](const at::Tensor& x) { return model->forward(x).detach(); });
  for (int i = 0; i < 6; ++i) step(at::rand({4, 64}));
  ends = true;
  EXPECT_THROW(step(at::rand({4, 64})), Error);
}

/// A module class may answer for its training flag in another way than by the flag.
struct FrozenNormImpl : torch::nn::BatchNorm1dImpl {
  using torch::nn::BatchNorm1dImpl::BatchNorm1dImpl;
  bool is_training() const noexcept override {
    return !is_frozen && BatchNorm1dImpl::is_training();
  }
  bool is_frozen = false;
};

TEST(GuardsOnFactsTest, AnOverriddenTrainingFlagIsAsked) {
  auto norm = std::make_shared<FrozenNormImpl>(torch::nn::BatchNormOptions(4));
  Session session(quiet());
  session.track("norm", norm);
  auto step =
      session.wrap("forward", [&](const at::Tensor& x) { return norm->forward(x).detach(); });
  for (int i = 0; i < 6; ++i) step(at::rand({8, 4}));
  ASSERT_GE(step.stats().replayed, 1U) << step.explain();
  norm->is_frozen = true;
  step(at::rand({8, 4}));
  EXPECT_EQ(step.stats().last_verdict.text(), "norm.training: true → false");
}

TEST(GuardsOnFactsTest, ExplainSaysWhatTellsVariantsApart) {
  Session session(quiet());
  auto step = session.wrap("scale", [](at::Tensor x) { return x * 2; });
  for (const std::int64_t rows : {64, 64, 64, 64, 17, 17, 17}) step(at::rand({rows, 3}));
  EXPECT_NE(step.explain().find("    differs from variant 0 in: inputs[0].size(0) 64 → 17\n"),
            std::string::npos)
      << step.explain();
}

TEST(GuardsOnFactsTest, VariantsThatAlternateDoNotHideEachOther) {
  Session session(quiet());
  auto step = session.wrap("apply", [](at::Tensor x, bool apply) { return apply ? x * 2 : x + 1; });
  for (int i = 0; i < 16; ++i) {
    const at::Tensor x = at::rand({8});
    EXPECT_TRUE(same_bits(step(x, i % 4 == 3), i % 4 == 3 ? x * 2 : x + 1));
  }
  EXPECT_EQ(step.stats().variants.size(), 2U) << step.explain();
  EXPECT_EQ(step.stats().replayed, 16U - 6U) << step.explain();
}

}  // namespace
}  // namespace steptape::tests
