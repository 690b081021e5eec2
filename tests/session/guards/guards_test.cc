#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_lazy_clone.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/session/twin_training.h"

namespace steptape::tests {
namespace {

class GuardsTest : public TwinTraining {
 protected:
  void expect_mismatch(const std::string& path) {
    const Verdict verdict = mismatch();
    EXPECT_EQ(verdict.path, path) << verdict.text();
  }

  void expect_replay_or_audit() {
    const Stats before = train_.stats();
    step_both();
    const Stats after = train_.stats();
    EXPECT_EQ(after.replayed + after.audits, before.replayed + before.audits + 1)
        << train_.explain();
  }
};

TEST_F(GuardsTest, AHyperparameterTakesNewValuesOnceThreeAreProved) {
  const auto recorded = train_.stats().recorded;
  both([](SgdTraining& training) { options_of(training).lr(0.05).momentum(0.5); });
  step_both();
  EXPECT_EQ(train_.stats().recorded, recorded + 1);
  both([](SgdTraining& training) { options_of(training).lr(0.2).momentum(0.7); });
  step_both();
  EXPECT_EQ(train_.stats().recorded, recorded + 2);
  both([](SgdTraining& training) { options_of(training).lr(0.3).momentum(0.6); });
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
  step_both({strided, batch.labels}, {strided.clone(at::MemoryFormat::Preserve), batch.labels});
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0].stride(0)");
}

TEST_F(GuardsTest, EachAddressRemainderIsComparedOnceAndThenReplayed) {
  const std::vector<Batch> batches = make_batches(48);
  for (std::int64_t i = 0; i < 48; ++i) {
    const std::int64_t first = i % 16;
    const at::Tensor shifted = at::empty({16 * 64 + 16}).narrow(0, first, 16 * 64).view({16, 64});
    shifted.copy_(batches[i].images);
    step_both({shifted, batches[i].labels}, {shifted, batches[i].labels});
  }
  EXPECT_EQ(train_.stats().variants.size(), 1U);
  EXPECT_EQ(train_.stats().audits, 15U) << train_.explain();
  EXPECT_EQ(train_.stats().eager, 0U) << train_.explain();
}

/// Products whose factors are rows of odd size: BLAS adds in another order by where they lie.
TEST(RemaindersTest, RowsOfADataSetLeaveTheBitsOfTheEagerStep) {
  torch::manual_seed(5);
  for (const std::int64_t width : {3, 7, 17, 33}) {
    const at::Tensor data = at::rand({200, width}), other = at::rand({200, width});
    at::Tensor weight = at::rand({width, 6});
    const auto body = [&weight](const at::Tensor& a, const at::Tensor& b) {
      return std::vector<at::Tensor>{a.mm(weight), b.mm(weight), a.t().mm(b), b.sum(0)};
    };
    Session session(quiet());
    session.track("weight", weight);
    auto step = session.wrap("step", body);
    for (int i = 0; i < 400; ++i) {
      const at::Tensor a = data.narrow(0, (7 * i) % 64, 5), b = other.narrow(0, (5 * i) % 48, 5);
      ASSERT_TRUE(all_same_bits(body(a, b), step(a, b))) << width << ", " << i;
    }
    EXPECT_EQ(step.stats().variants.size(), 1U) << step.explain();
    EXPECT_GE(step.stats().replayed, 300U) << step.explain();
  }
}

TEST_F(GuardsTest, AnInputThatRequiresGradIsNoticed) {
  const Batch batch = make_batches(1)[0];
  const at::Tensor a = batch.images.clone().requires_grad_(),
                   b = batch.images.clone().requires_grad_();
  step_both({a, batch.labels}, {b, batch.labels});
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0].requires_grad");
}

TEST_F(GuardsTest, AnUndefinedInputIsNoticed) {
  EXPECT_THROW(train_(at::Tensor(), at::Tensor()), c10::Error);
  EXPECT_EQ(train_.stats().last_verdict.path, "inputs[0]");
  step_both();  // as in eager code, zero_grad had run when the forward raised
  expect_replay();
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
  step_both();
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
    step_both();
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

TEST_F(GuardsTest, InvalidateDropsThePlan) {
  session_.invalidate("the test says so");
  const std::uint64_t recorded = train_.stats().recorded;
  step_both();
  EXPECT_EQ(train_.stats().recorded, recorded + 1);
  EXPECT_NE(session_.explain().find("the test says so"), std::string::npos);
}

/// Equal values in another list are no change; the module's guard goes by the new list.
TEST(GuardsOnFactsTest, AnOptionThatIsAssignedTheSameValuesHolds) {
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({4, 8}));
  Session session(quiet());
  session.track("norm", norm.ptr());
  auto step =
      session.wrap("forward", [&](const at::Tensor& x) { return norm->forward(x).detach(); });
  const at::Tensor x = at::rand({2, 4, 8});
  for (int i = 0; i < 6; ++i) step(x);
  const std::uint64_t replayed = step.stats().replayed;
  ASSERT_GE(replayed, 1U) << step.explain();
  std::vector<std::vector<std::int64_t>> kept;  // so that each list lies elsewhere
  for (int i = 0; i < 5; ++i) {
    std::vector<std::int64_t> shape{4, 8};
    shape.swap(norm->options.normalized_shape());
    kept.push_back(std::move(shape));
    EXPECT_TRUE(same_bits(step(x), norm->forward(x).detach()));
  }
  EXPECT_EQ(step.stats().replayed, replayed + 5) << step.explain();
  norm->options.normalized_shape() = {8, 4};
  EXPECT_ANY_THROW(step(x));
  EXPECT_EQ(step.stats().last_verdict.text(), "norm.options.normalized_shape: [4, 8] → [8, 4]");
}

/// The eager run after a plan that threw may drop that plan, by a call of the step itself.
TEST(GuardsOnFactsTest, AStepThatCallsItselfWhileItsPlanIsDropped) {
  Session session(quiet());
  std::function<at::Tensor(at::Tensor, at::Tensor)> again;
  auto step = session.wrap("pick", [&](const at::Tensor& x, const at::Tensor& index) {
    try {
      return x.index_select(0, index);
    } catch (const c10::Error&) {
      session.invalidate("an index out of range");
      return again(x, index % 4);
    }
  });
  again = [&](const at::Tensor& x, const at::Tensor& index) { return step(x, index); };
  const at::Tensor x = at::rand({4});
  for (int i = 0; i < 6; ++i) step(x, at::arange(2));
  ASSERT_GE(step.stats().replayed, 1U) << step.explain();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(step(x, at::arange(2) + 5), x.narrow(0, 1, 2))) << step.explain();
  }
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
