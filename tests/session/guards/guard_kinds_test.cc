#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <memory>

#include "guards/mismatch.h"
#include "tests/session/twin_training.h"

// For each kind of guard a call in which it alone fails: the sentence is asserted, and that the
// eager step ran. docs/guards.md names the tests of this file, and its examples are their
// sentences.
namespace steptape::tests {
namespace {

/// A function of tensors, taped until it replays, beside the function itself.
template <typename Signature>
class Taped;

template <typename... A>
class Taped<at::Tensor(A...)> {
 public:
  using Function = std::function<at::Tensor(A...)>;
  explicit Taped(Function function) : Taped(std::move(function), [](Session&) {}) {}
  template <typename Declare>
  Taped(Function function, Declare declare) : function_(std::move(function)), session_(quiet()) {
    declare(session_);
    step_.emplace(session_.wrap("step", function_));
  }

  void warm_up(A... arguments) {
    for (int i = 0; i < 6; ++i)
      EXPECT_TRUE(same_bits((*step_)(arguments...), function_(arguments...)));
    ASSERT_GE(step_->stats().replayed, 1U) << step_->explain();
  }

  /// Calls it; a guard of `kind` must fail, and the result be the function's.
  std::string verdict(GuardKind kind, A... arguments) {
    const std::uint64_t replayed = step_->stats().replayed;
    const at::Tensor found = (*step_)(arguments...);
    const at::Tensor expected = function_(arguments...);
    EXPECT_EQ(step_->stats().replayed, replayed) << step_->explain();
    if (expected.layout() == at::kStrided && expected.is_cpu()) {
      EXPECT_TRUE(same_bits(found.resolve_conj(), expected.resolve_conj()));
    }
    const Verdict verdict = step_->stats().last_verdict;
    EXPECT_EQ(verdict.kind, kind) << verdict.text();
    return verdict.text();
  }

 private:
  Function function_;
  Session session_;
  std::optional<Step<at::Tensor(A...)>> step_;
};

using OfOne = Taped<at::Tensor(at::Tensor)>;
using OfTwo = Taped<at::Tensor(at::Tensor, at::Tensor)>;

at::Tensor doubled(at::Tensor x) { return x * 2; }

TEST(GuardKindsTest, ArgumentCount) {
  Taped<at::Tensor(std::vector<at::Tensor>)> taped(
      [](const std::vector<at::Tensor>& parts) { return parts.front() + parts.back(); });
  const at::Tensor x = at::rand({4});
  taped.warm_up({x, x});
  EXPECT_EQ(taped.verdict(GuardKind::kArgumentCount, {x, x, x}), "inputs.size: 3 → 4");
}

TEST(GuardKindsTest, Argument) {
  Taped<at::Tensor(at::Tensor, bool)> taped(
      [](const at::Tensor& x, bool twofold) { return twofold ? x * 2 : x + 1; });
  const at::Tensor x = at::rand({4});
  taped.warm_up(x, true);
  EXPECT_EQ(taped.verdict(GuardKind::kArgument, x, false), "inputs[1]: true → false");
}

TEST(GuardKindsTest, PresenceOfAnArgument) {
  OfTwo taped([](const at::Tensor& x, const at::Tensor& y) { return y.defined() ? x + y : x * 2; });
  const at::Tensor x = at::rand({4});
  taped.warm_up(x, x);
  EXPECT_EQ(taped.verdict(GuardKind::kPresence, x, at::Tensor()),
            "inputs[1]: a tensor → undefined");
}

TEST(GuardKindsTest, TensorKind) {
  OfOne taped(doubled);
  taped.warm_up(at::rand({4}));
  EXPECT_EQ(taped.verdict(GuardKind::kTensorKind, at::rand({4}).to_sparse()),
            "inputs[0]: a plain tensor → sparse");
}

/// Machines that build this need have no second device: the words are those of the comparison.
TEST(GuardKindsTest, Device) {
  trace::Tensor geometry;
  geometry.sizes = {4};
  geometry.strides = {1};
  const Verdict verdict = guards::geometry_mismatch("inputs[0]", geometry,
                                                    {trace::DeviceKind::kCuda, 0}, at::rand({4}));
  EXPECT_EQ(verdict.kind, GuardKind::kDevice);
  EXPECT_EQ(verdict.text(), "inputs[0].device: cuda:0 → cpu");
}

TEST(GuardKindsTest, Dtype) {
  OfOne taped(doubled);
  taped.warm_up(at::rand({4}));
  EXPECT_EQ(taped.verdict(GuardKind::kDtype, at::rand({4}, at::kDouble)),
            "inputs[0].dtype: float32 → float64");
}

TEST(GuardKindsTest, Shape) {
  OfOne taped(doubled);
  taped.warm_up(at::rand({64, 3}));
  EXPECT_EQ(taped.verdict(GuardKind::kShape, at::rand({17, 3})), "inputs[0].size(0): 64 → 17");
  EXPECT_EQ(taped.verdict(GuardKind::kShape, at::rand({64})), "inputs[0].dim: 2 → 1");
}

TEST(GuardKindsTest, Stride) {
  OfOne taped(doubled);
  taped.warm_up(at::rand({4, 3}));
  EXPECT_EQ(taped.verdict(GuardKind::kStride, at::rand({3, 4}).t()), "inputs[0].stride(0): 3 → 1");
}

TEST(GuardKindsTest, TensorFlags) {
  OfOne taped(doubled);
  taped.warm_up(at::rand({4}, at::kComplexFloat));
  EXPECT_EQ(taped.verdict(GuardKind::kTensorFlags, at::rand({4}, at::kComplexFloat).conj()),
            "inputs[0].is_conj: off → on");
}

TEST(GuardKindsTest, Inference) {
  OfOne taped(doubled);
  taped.warm_up(at::rand({4}));
  at::Tensor made_in_inference;
  {
    const c10::InferenceMode inference;
    made_in_inference = at::rand({4});
  }
  EXPECT_EQ(taped.verdict(GuardKind::kInference, made_in_inference),
            "inputs[0].is_inference: false → true");
}

/// Other remainders of inputs are tried; those of tracked tensors end the plan.
TEST(GuardKindsTest, Alignment) {
  at::Tensor weight = at::rand({16});
  Session session(quiet());
  session.track("weight", weight);
  auto step = session.wrap("step", [&](at::Tensor x) { return x * weight; });
  for (int i = 0; i < 4; ++i) step(at::rand({16}));
  EXPECT_EQ(step.stats().replayed, 1U) << step.explain();
  const at::Tensor memory = at::rand({32});
  weight.set_data(at::from_blob(memory.data_ptr<float>() + 1, {16}));
  step(at::rand({16}));
  EXPECT_EQ(step.stats().last_verdict.kind, GuardKind::kAlignment);
  EXPECT_EQ(step.stats().last_verdict.text(), "weight.data_ptr modulo 64: 0 → 4");
}

TEST(GuardKindsTest, Memory) {
  OfTwo taped([](const at::Tensor& a, const at::Tensor& b) { return a + b; });
  const at::Tensor series = at::rand({32});
  taped.warm_up(series.narrow(0, 0, 16), series.narrow(0, 16, 16));
  EXPECT_EQ(taped.verdict(GuardKind::kMemory, series.narrow(0, 0, 16), at::rand({16})),
            "inputs[1].data_ptr: within the memory of inputs[0] → elsewhere");
}

TEST(GuardKindsTest, Overlap) {
  Session session(quiet());
  auto step = session.wrap("step", [](at::Tensor a, const at::Tensor& b) {
    a.add_(1);
    return a + b;
  });
  const at::Tensor a = at::zeros({16}), b = at::ones({16});
  for (int i = 1; i < 7; ++i) EXPECT_TRUE(same_bits(step(a, b), at::full({16}, i + 1.0F)));
  ASSERT_GE(step.stats().replayed, 1U) << step.explain();
  EXPECT_TRUE(same_bits(step(a, a.alias()), at::full({16}, 14.0F)));
  EXPECT_EQ(step.stats().last_verdict.text(),
            "inputs[1]: memory of its own → memory of inputs[0], which the step writes");
  EXPECT_EQ(step.stats().last_verdict.kind, GuardKind::kOverlap);
}

TEST(GuardKindsTest, Alive) {
  auto mask = std::make_shared<at::Tensor>(at::rand({16}));
  OfOne taped([mask](const at::Tensor& x) { return x * *mask; });
  taped.warm_up(at::rand({16}));
  *mask = at::rand({16});
  EXPECT_EQ(taped.verdict(GuardKind::kAlive, at::rand({16})),
            "outside[0]: alive → freed by the program");
}

TEST(GuardKindsTest, GeometryOfWhatIsCaptured) {
  const at::Tensor mask = at::rand({4, 4});
  OfOne taped([mask](const at::Tensor& x) { return x * mask; });
  taped.warm_up(at::rand({4, 4}));
  mask.t_();
  EXPECT_EQ(taped.verdict(GuardKind::kStride, at::rand({4, 4})), "outside[0].stride(0): 4 → 1");
}

TEST(GuardKindsTest, MemoryOfWhatIsCaptured) {
  const at::Tensor mask = at::rand({16});
  const at::Tensor kept = mask.detach();
  OfOne taped([mask](const at::Tensor& x) { return x * mask; });
  taped.warm_up(at::rand({16}));
  mask.set_data(at::rand({16}));
  EXPECT_EQ(taped.verdict(GuardKind::kMemory, at::rand({16})),
            "outside[0]: the memory that it had → another");
}

TEST(GuardKindsTest, HostValue) {
  double tau = 1;
  OfOne taped([&](const at::Tensor& x) { return tau > 1 ? x * 2 : x + 1; },
              [&](Session& session) { session.host("tau", [&] { return tau; }); });
  taped.warm_up(at::rand({4}));
  tau = 1.5;
  EXPECT_EQ(taped.verdict(GuardKind::kHostValue, at::rand({4})), "tau: 1.0 → 1.5");
}

TEST(GuardKindsTest, Fact) {
  bool late = false;
  OfOne taped([&](const at::Tensor& x) { return late ? x * 2 : x + 1; },
              [&](Session& session) { session.guard("late", [&] { return late; }); });
  taped.warm_up(at::rand({4}));
  late = true;
  EXPECT_EQ(taped.verdict(GuardKind::kFact, at::rand({4})), "late: false → true");
}

TEST(GuardKindsTest, HostRead) {
  OfOne taped([](const at::Tensor& x) { return x.sum().item<float>() > 8 ? x * 2 : x + 1; });
  taped.warm_up(at::ones({16}));
  EXPECT_EQ(taped.verdict(GuardKind::kHostRead, at::zeros({16})),
            "op 1 `aten::_local_scalar_dense` read by the host: 16.0 → 0.0");
}

TEST(GuardKindsTest, RunShape) {
  OfOne taped([](const at::Tensor& x) { return x.nonzero(); });
  taped.warm_up(at::ones({16}));
  at::Tensor fewer = at::ones({16});
  fewer[3] = 0;
  EXPECT_EQ(taped.verdict(GuardKind::kRunShape, fewer),
            "op 0 `aten::nonzero` results[0].size(0): 16 → 15");
}

TEST(GuardKindsTest, Exception) {
  OfOne taped([](const at::Tensor& x) {
    try {
      return at::linalg_cholesky(x);
    } catch (const c10::Error&) {
      return x * 2;
    }
  });
  taped.warm_up(at::eye(4));
  EXPECT_EQ(taped.verdict(GuardKind::kException, -at::eye(4)),
            "the replay: runs to its end → threw: linalg.cholesky: The factorization could not be "
            "completed because the input is not positive-definite (the leading minor of order 1 is "
            "not positive-definite).");
}

class TrainingGuardKindsTest : public TwinTraining {
 protected:
  /// Changes both and steps: a guard of `kind` must fail. Returns its sentence.
  template <typename Change>
  std::string verdict(GuardKind kind, Change change) {
    both(change);
    const Verdict found = mismatch();
    EXPECT_EQ(found.kind, kind) << found.text();
    return found.text();
  }
};

TEST_F(TrainingGuardKindsTest, PresenceOfAGradient) {
  EXPECT_EQ(verdict(GuardKind::kPresence,
                    [](SgdTraining& t) { t.model->fc1->weight.mutable_grad().reset(); }),
            "model.fc1.weight.grad: defined → None");
}

TEST_F(TrainingGuardKindsTest, Offset) {
  EXPECT_EQ(verdict(GuardKind::kOffset,
                    [](SgdTraining& t) {
                      const torch::NoGradGuard no_grad;
                      const at::Tensor old = t.model->fc1->bias;
                      const at::Tensor moved = at::zeros({48}).narrow(0, 16, 32);
                      moved.copy_(old);
                      t.model->fc1->bias.set_data(moved);
                    }),
            "model.fc1.bias.storage_offset: 0 → 16");
}

TEST_F(TrainingGuardKindsTest, AParameterThatMovesIntoTheMemoryOfAnother) {
  EXPECT_EQ(verdict(GuardKind::kMemory,
                    [](SgdTraining& t) {
                      t.model->fc1->bias.set_data(t.model->fc1->weight.detach().view(-1).narrow(
                          0, 0, t.model->fc1->bias.numel()));
                    }),
            "model.fc1.bias.storage().nbytes: 128 → 8192");
}

TEST_F(TrainingGuardKindsTest, RequiresGrad) {
  EXPECT_EQ(verdict(GuardKind::kRequiresGrad,
                    [](SgdTraining& t) { t.model->fc1->bias.set_requires_grad(false); }),
            "model.fc1.bias.requires_grad: true → false");
}

TEST_F(TrainingGuardKindsTest, Hooks) {
  EXPECT_EQ(verdict(GuardKind::kHooks,
                    [](SgdTraining& t) {
                      t.model->fc1->weight.register_hook([](const at::Tensor& g) { return g * 2; });
                    }),
            "model.fc1.weight (hooks): none → 1 hook");
}

TEST_F(TrainingGuardKindsTest, AHookInThePlaceOfAnother) {
  std::vector<unsigned> hooks;
  const auto by = [&](double factor) {
    return [&hooks, factor](SgdTraining& t) {
      hooks.push_back(
          t.model->fc1->weight.register_hook([factor](const at::Tensor& g) { return g * factor; }));
    };
  };
  verdict(GuardKind::kHooks, by(0.5));
  for (int i = 0; i < 3; ++i) step_both();
  std::size_t next = 0;
  EXPECT_EQ(
      verdict(GuardKind::kHooks,
              [&](SgdTraining& t) {
                t.model->fc1->weight.remove_hook(hooks[next++]);
                t.model->fc1->weight.register_hook([](const at::Tensor& g) { return g * 0.25; });
              }),
      "model.fc1.weight (hooks): 1 hook → others");
}

TEST_F(TrainingGuardKindsTest, Training) {
  EXPECT_EQ(verdict(GuardKind::kTraining, [](SgdTraining& t) { t.model->dropout->eval(); }),
            "model.dropout.training: true → false");
}

TEST_F(TrainingGuardKindsTest, ModuleOption) {
  EXPECT_EQ(
      verdict(GuardKind::kModuleOption, [](SgdTraining& t) { t.model->dropout->options.p(0.5); }),
      "model.dropout.options.p: 0.25 → 0.5");
  EXPECT_EQ(verdict(GuardKind::kModuleOption,
                    [](SgdTraining& t) { t.model->norm->options.momentum(0.5); }),
            "model.norm.options.momentum: 0.1 → 0.5");
}

TEST_F(TrainingGuardKindsTest, AMemberThatIsReboundToAnotherTensor) {
  EXPECT_EQ(verdict(GuardKind::kModuleOption,
                    [](SgdTraining& t) {
                      t.model->norm->running_mean = t.model->norm->running_mean.clone();
                    }),
            "model.norm.running_mean: opaque(\"torch::Tensor\") → another");
}

TEST_F(TrainingGuardKindsTest, Parameters) {
  EXPECT_EQ(verdict(GuardKind::kParameters,
                    [](SgdTraining& t) { t.model->register_parameter("extra", at::zeros({1})); }),
            "model.extra: none → a parameter");
}

TEST_F(TrainingGuardKindsTest, ModuleBuffers) {
  EXPECT_EQ(verdict(GuardKind::kModuleBuffers,
                    [](SgdTraining& t) { t.model->register_buffer("extra", at::zeros({1})); }),
            "model.extra: none → a module buffer");
}

TEST_F(TrainingGuardKindsTest, SubModules) {
  EXPECT_EQ(verdict(GuardKind::kSubModules,
                    [](SgdTraining& t) {
                      t.model->dropout =
                          t.model->replace_module("dropout", torch::nn::Dropout(0.25));
                    }),
            "model.dropout: the sub-module registered when it was recorded → another");
  for (int i = 0; i < 3; ++i) step_both();
  EXPECT_EQ(verdict(GuardKind::kSubModules,
                    [](SgdTraining& t) { t.model->unregister_module("dropout"); }),
            "model.dropout: the sub-module registered when it was recorded → none");
  for (int i = 0; i < 3; ++i) step_both();
  EXPECT_EQ(
      verdict(GuardKind::kSubModules,
              [](SgdTraining& t) { t.model->register_module("more", torch::nn::Dropout(0.25)); }),
      "model.more: none → a sub-module");
}

TEST_F(TrainingGuardKindsTest, ParameterGroups) {
  EXPECT_EQ(
      verdict(GuardKind::kParameterGroups,
              [](SgdTraining& t) {
                t.optimizer.add_param_group(torch::optim::OptimizerParamGroup({at::zeros({1})}));
              }),
      "optimizer.param_groups.size: 1 → 2");
}

TEST_F(TrainingGuardKindsTest, OptimizerState) {
  EXPECT_EQ(verdict(GuardKind::kOptimizerState,
                    [](SgdTraining& t) {
                      t.optimizer.state().erase(t.model->fc1->weight.unsafeGetTensorImpl());
                    }),
            "optimizer.state[model.fc1.weight]: there → gone");
}

TEST_F(TrainingGuardKindsTest, ATensorOfTheOptimizerStateThatIsReplaced) {
  EXPECT_EQ(verdict(GuardKind::kOptimizerState,
                    [](SgdTraining& t) {
                      auto& state = static_cast<torch::optim::SGDParamState&>(
                          *t.optimizer.state().at(t.model->fc2->weight.unsafeGetTensorImpl()));
                      state.momentum_buffer(state.momentum_buffer().clone());
                    }),
            "optimizer.state[model.fc2.weight]: the tensors it held when it was recorded → others");
}

TEST_F(TrainingGuardKindsTest, Predicate) {
  EXPECT_EQ(verdict(GuardKind::kPredicate, [](SgdTraining& t) { options_of(t).weight_decay(0.1); }),
            "optimizer.param_groups[0].weight_decay: zero → 0.1");
}

TEST_F(TrainingGuardKindsTest, Ambient) {
  EXPECT_EQ(verdict(GuardKind::kAmbient,
                    [](SgdTraining&) { at::globalContext().setUserEnabledMkldnn(false); }),
            "ambient.mkldnn: on → off");
  at::globalContext().setUserEnabledMkldnn(true);
}

/// LBFGS has no formulas: its hyperparameters must be the recorded ones.
TEST(GuardKindsTest, Hyperparameter) {
  torch::nn::Linear model(4, 4);
  torch::optim::LBFGS optimizer(model->parameters(), torch::optim::LBFGSOptions(1));
  OfOne taped([&](const at::Tensor& x) { return model->forward(x).detach(); },
              [&](Session& session) { session.track("optimizer", optimizer); });
  const torch::NoGradGuard no_grad;
  taped.warm_up(at::rand({4, 4}));
  static_cast<torch::optim::LBFGSOptions&>(optimizer.param_groups()[0].options()).lr(0.5);
  EXPECT_EQ(taped.verdict(GuardKind::kHyperparameter, at::rand({4, 4})),
            "optimizer.param_groups[0].lr: 1.0 → 0.5");
}

TEST(FalseAlarmsTest, TenThousandUnchangedStepsNeverFallBack) {
  constexpr std::uint64_t kSteps = 10'000;
  torch::manual_seed(3);
  auto model = std::make_shared<NetImpl>(NetOptions{true, 0.25});
  auto optimizer = std::make_shared<torch::optim::Adam>(model->parameters());
  Session session(quiet());
  session.track("model", model).track("optimizer", optimizer);
  auto train = session.wrap("train", [&](const at::Tensor& images, const at::Tensor& labels) {
    optimizer->zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(model->forward(images), labels);
    loss.backward();
    optimizer->step();
    return loss;
  });
  const std::vector<Batch> batches = make_batches(16);
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    const Batch& batch = batches[i % batches.size()];
    train(batch.images, batch.labels);
  }
  const Stats stats = train.stats();
  EXPECT_EQ(stats.fell_back, 0U) << train.explain();
  EXPECT_EQ(stats.variants.size(), 1U);
  EXPECT_EQ(stats.replayed + stats.recorded + stats.trials, kSteps) << train.explain();
}

}  // namespace
}  // namespace steptape::tests
