#include <gmock/gmock.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>

#include "recorder/frontend_hints.h"
#include "recording_test.h"
#include "trace/path.h"
#include "trace/validate.h"

namespace steptape::recorder {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

/// A projection whose weight belongs to another module too.
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(at::Tensor shared) { weight = register_parameter("weight", std::move(shared)); }
  at::Tensor forward(const at::Tensor& x) { return torch::nn::functional::linear(x, weight); }
  at::Tensor weight;
};
TORCH_MODULE(Head);

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(10, 4));
    head = register_module("head", Head(embedding->weight));
    again = register_module("again", embedding);
  }
  torch::nn::Embedding embedding{nullptr}, again{nullptr};
  Head head{nullptr};
};
TORCH_MODULE(Tied);

std::string call_of(const trace::Recording& recording, const trace::Op& op) {
  if (op.module == trace::kNone) return "";
  return trace::call_path(recording.modules.at(op.module).path, op.call);
}

/// The call that each op of a phase belongs to.
std::vector<std::string> calls_of(const trace::Recording& recording, trace::Phase phase) {
  std::vector<std::string> calls;
  for (const trace::Op& op : recording.ops) {
    if (op.phase == phase) calls.push_back(call_of(recording, op));
  }
  return calls;
}

std::vector<std::string> forward_calls(const trace::Recording& recording) {
  return calls_of(recording, trace::Phase::kForward);
}

/// "model.fc1@2 from 7"
std::vector<std::string> accesses_of(const trace::Recording& recording) {
  std::vector<std::string> accesses;
  for (const trace::ModuleAccess& access : recording.module_access) {
    accesses.push_back(trace::call_path(recording.modules.at(access.module).path, access.call) +
                       " from " + std::to_string(access.first_op));
  }
  return accesses;
}

class ModuleCallsTest : public RecorderTest {
 protected:
  /// Of a step of the tracked objects, which must be valid.
  trace::Recording recorded(const std::function<void()>& step) {
    trace::Recording recording = recording_of(step);
    trace::validate(recording);
    return recording;
  }

  /// The calls of the ops after the last backward op.
  static std::vector<std::string> behind_backward(const trace::Recording& recording) {
    std::vector<std::string> calls;
    for (const trace::Op& op : recording.ops) {
      if (op.phase == trace::Phase::kBackward) {
        calls.clear();
      } else {
        calls.push_back(call_of(recording, op));
      }
    }
    return calls;
  }

  void expect_no_calls_in_updates(torch::optim::Optimizer& optimizer) {
    objects.track("model", *model);
    objects.track("optimizer", optimizer);
    for (int step = 0; step < 3; ++step) {
      const auto recording = recorded([&] {
        optimizer.zero_grad();
        model->forward(x).sum().backward();
        optimizer.step();
      });
      ASSERT_THAT(behind_backward(recording), testing::Not(IsEmpty()));
      EXPECT_THAT(behind_backward(recording), Each("")) << "step " << step;
      EXPECT_EQ(recording.module_access.size(), 3U) << "step " << step;
    }
  }

  Mlp model;
  at::Tensor x = at::randn({5, 4});
};

TEST_P(ModuleCallsTest, OpsBetweenTwoModulesBelongToTheOneThatHoldsBoth) {
  objects.track("model", *model);
  const auto recording = recorded([this] { model->forward(x).sum(); });
  EXPECT_THAT(forward_calls(recording),
              ElementsAre("model.fc1", "model.fc1", "model", "model.fc2", "model.fc2", ""));
  EXPECT_THAT(accesses_of(recording),
              ElementsAre("model from 0", "model.fc1 from 0", "model.fc2 from 3"));
}

TEST_P(ModuleCallsTest, OpsBeforeTheFirstModuleBelongToNone) {
  objects.track("model", *model);
  const auto recording = recorded([this] { model->fc1->forward(x.abs()); });
  EXPECT_THAT(forward_calls(recording), ElementsAre("", "model.fc1", "model.fc1"));
}

TEST_P(ModuleCallsTest, ModulesOfTwoModelsHaveNothingAroundThem) {
  Mlp other;
  objects.track("model", *model);
  objects.track("other", *other);
  const auto recording = recorded([&] {
    model->fc1->forward(x).relu();
    other->fc1->forward(x);
  });
  EXPECT_THAT(forward_calls(recording),
              ElementsAre("model.fc1", "model.fc1", "", "other.fc1", "other.fc1"));
}

TEST_P(ModuleCallsTest, AModuleThatTakesItsWeightAgainIsCalledAgain) {
  torch::nn::Linear fc(4, 4);
  objects.track("fc", *fc);
  const auto recording = recorded([&] { fc->forward(fc->forward(x)).sum().backward(); });
  EXPECT_THAT(accesses_of(recording), ElementsAre("fc from 0", "fc@2 from 2"));
  const auto forward = forward_calls(recording);
  EXPECT_THAT(std::vector<std::string>(forward.begin(), forward.begin() + 4),
              ElementsAre("fc", "fc", "fc@2", "fc@2"));
  const auto backward = calls_of(recording, trace::Phase::kBackward);
  EXPECT_THAT(backward, Contains("fc"));
  EXPECT_THAT(backward, Contains("fc@2"));
  for (const trace::Op& op : recording.ops) {
    if (op.phase != trace::Phase::kBackward || op.sequence < 0) continue;
    const auto is_forward = [&op](const trace::Op& other) {
      return other.phase == trace::Phase::kForward && other.sequence == op.sequence;
    };
    const auto forward_op = std::ranges::find_if(recording.ops, is_forward);
    ASSERT_NE(forward_op, recording.ops.end());
    EXPECT_EQ(call_of(recording, op), call_of(recording, *forward_op));
  }
}

TEST_P(ModuleCallsTest, AnUnrolledCellIsCalledOnceAStep) {
  constexpr int kSteps = 24;
  torch::nn::GRUCell cell(4, 6);
  objects.track("cell", *cell);
  const auto recording = recorded([&] {
    at::Tensor state = at::zeros({5, 6});
    for (int k = 0; k < kSteps; ++k) state = cell->forward(x, state);
  });
  ASSERT_EQ(recording.module_access.size(), kSteps);
  EXPECT_EQ(recording.module_access.back().call, kSteps);
  const trace::Index second = recording.module_access[1].first_op;
  const trace::Index third = recording.module_access[2].first_op;
  for (trace::Index k = second; k < third; ++k) {
    EXPECT_EQ(call_of(recording, recording.ops[k]), "cell@2") << k;
  }
}

TEST_P(ModuleCallsTest, ASequenceOwnsWhatItsModulesWithoutParametersDo) {
  torch::nn::Sequential layers(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 4),
                               torch::nn::Tanh(), torch::nn::Linear(4, 2));
  objects.track("layers", *layers);
  const auto recording = recorded([&] { layers->forward(x); });
  EXPECT_THAT(forward_calls(recording), ElementsAre("layers.0", "layers.0", "layers", "layers.2",
                                                    "layers.2", "layers", "layers.4", "layers.4"));
}

TEST_P(ModuleCallsTest, StatisticsBelongToTheCallThatCountsThem) {
  torch::nn::BatchNorm1d norm(4);
  objects.track("norm", *norm);
  const auto recording = recorded([&] { norm->forward(norm->forward(x)); });
  EXPECT_THAT(accesses_of(recording), testing::SizeIs(2));
  EXPECT_THAT(forward_calls(recording), testing::Not(Contains("")));
}

TEST_P(ModuleCallsTest, TiedWeightsBelongToTheFirstModuleAndKnowTheOther) {
  Tied tied;
  objects.track("model", *tied);
  const auto tokens = at::arange(5);
  const auto recording = recorded([&] { tied->head->forward(tied->embedding->forward(tokens)); });
  ASSERT_EQ(recording.tracked.at(0).path, "model.embedding.weight");
  EXPECT_THAT(recording.tracked[0].aliases, ElementsAre("model.again.weight", "model.head.weight"));
  EXPECT_EQ(recording.modules.at(1).path, "model.embedding");
  EXPECT_THAT(recording.modules[1].aliases, ElementsAre("model.again"));
  EXPECT_THAT(forward_calls(recording), Contains("model.embedding"));
}

TEST_P(ModuleCallsTest, StepsOfSgdAreNoCalls) {
  torch::optim::SGD sgd(model->parameters(),
                        torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  expect_no_calls_in_updates(sgd);
}

TEST_P(ModuleCallsTest, StepsOfAdamAreNoCalls) {
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(0.1).weight_decay(0.01));
  expect_no_calls_in_updates(adam);
}

TEST_P(ModuleCallsTest, AnUpdateAloneIsNoCall) {
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(0.1).weight_decay(0.01));
  objects.track("model", *model);
  objects.track("optimizer", adam);
  model->forward(x).sum().backward();
  const auto recording = recorded([&] { adam.step(); });
  EXPECT_THAT(forward_calls(recording), Each(""));
  EXPECT_THAT(recording.module_access, IsEmpty());
}

TEST_P(ModuleCallsTest, AForwardPassBehindAnUpdateIsACall) {
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  objects.track("model", *model);
  objects.track("optimizer", sgd);
  const auto recording = recorded([&] {
    sgd.zero_grad();
    model->forward(x).sum().backward();
    sgd.step();
    const at::NoGradGuard no_grad;
    model->forward(x);
  });
  EXPECT_THAT(accesses_of(recording), testing::SizeIs(5));
  EXPECT_EQ(call_of(recording, recording.ops.back()), "model.fc2@2");
  EXPECT_EQ(call_of(recording, recording.ops[recording.ops.size() - 3]), "model");
}

TEST_P(ModuleCallsTest, GradientsThatAccumulateBelongToTheLastCallOfTheirParameter) {
  objects.track("model", *model);
  model->forward(x).sum().backward();
  const auto recording =
      recorded([this] { (model->forward(x).sum() + model->forward(x).sum()).backward(); });
  std::vector<std::string> calls;
  for (const trace::Op& op : recording.ops) {
    const bool is_backward = op.phase == trace::Phase::kBackward;
    if (is_backward && op.sequence < 0) calls.push_back(call_of(recording, op));
  }
  EXPECT_THAT(calls, Contains("model.fc1@2"));
  EXPECT_THAT(calls, testing::Not(Contains("model.fc1")));
}

TEST_P(ModuleCallsTest, AFrontEndTellsCallsExactly) {
  objects.track("model", *model);
  const auto recording = recorded([this] {
    FrontendHints& hints = *FrontendHints::current();
    const int untracked = 0;
    for (int call = 0; call < 2; ++call) {
      hints.enter_module("model", model.get());
      x.abs();
      hints.enter_module("model.fc1", model->fc1.get());
      x.abs();
      hints.leave_module(model->fc1.get());
      hints.enter_module("", &untracked);
      x.abs();
      hints.leave_module(&untracked);
      hints.leave_module(model.get());
    }
    x.abs();
    model->fc2->forward(at::ones({1, 8}));
  });
  const auto calls = forward_calls(recording);
  EXPECT_THAT(std::vector<std::string>(calls.begin(), calls.begin() + 7),
              ElementsAre("model", "model.fc1", "model", "model@2", "model.fc1@2", "model@2", ""));
  EXPECT_EQ(calls.back(), "");
  EXPECT_THAT(accesses_of(recording), ElementsAre("model from 0", "model.fc1 from 1",
                                                  "model@2 from 3", "model.fc1@2 from 4"));
}

TEST_P(ModuleCallsTest, ACallWhoseEndWasNotToldEndsWithTheCallAroundIt) {
  objects.track("model", *model);
  const auto recording = recorded([this] {
    FrontendHints& hints = *FrontendHints::current();
    hints.enter_module("model", model.get());
    hints.enter_module("model.fc1", model->fc1.get());
    x.abs();
    hints.leave_module(model.get());
    x.abs();
    hints.leave_module(model->fc1.get());
    hints.enter_module("model.fc2", model->fc2.get());
    x.abs();
    hints.leave_module(model->fc2.get());
  });
  EXPECT_THAT(forward_calls(recording), ElementsAre("model.fc1", "", "model.fc2"));
}

/// As gradient checkpointing does: backward runs the forward of a module again, and then its
/// backward.
TEST_P(ModuleCallsTest, ACallThatBeginsInBackwardHasItsOwnOps) {
  objects.track("model", *model);
  const auto recording = recorded([this] {
    const at::Tensor hidden = model->fc1->forward(x);
    hidden.register_hook([this](const at::Tensor& gradient) {
      FrontendHints& hints = *FrontendHints::current();
      hints.enter_module("model.fc2", model->fc2.get());
      const at::Tensor scaled = gradient.abs();
      hints.leave_module(model->fc2.get());
      return scaled;
    });
    FrontendHints::current()->enter_module("model", model.get());
    hidden.sum().backward();
    FrontendHints::current()->leave_module(model.get());
  });
  std::vector<std::string> calls;
  for (const trace::Op& op : recording.ops) {
    if (recording.operator_of(op).name == "aten::abs") calls.push_back(call_of(recording, op));
  }
  EXPECT_THAT(calls, ElementsAre("model.fc2"));
}

TEST_P(ModuleCallsTest, CallsAroundAreNotedWithTheFirstOpInside) {
  objects.track("model", *model);
  const auto recording = recorded([this] {
    FrontendHints& hints = *FrontendHints::current();
    hints.enter_module("model", model.get());
    hints.enter_module("model.fc2", model->fc2.get());
    x.abs();
    hints.leave_module(model->fc2.get());
    hints.leave_module(model.get());
  });
  EXPECT_THAT(accesses_of(recording), ElementsAre("model from 0", "model.fc2 from 0"));
}

TEST_P(ModuleCallsTest, RefusalsNameTheModuleOfTheirOp) {
  objects.track("model", *model);
  const auto recording = recorded([this] {
    const at::Tensor hidden = model->fc1->forward(x);
    const at::Tensor count = at::nonzero(hidden);
    static_cast<void>(count);
    hidden.sum().item();
    model->fc1->weight.sum().item();
  });
  for (const Refusal& refusal : recording.refusals) {
    if (refusal.op_index < 0) continue;
    const trace::Op& op = recording.ops.at(static_cast<std::size_t>(refusal.op_index));
    EXPECT_EQ(refusal.module,
              op.module == trace::kNone ? "" : recording.modules.at(op.module).path);
  }
}

TEST_P(ModuleCallsTest, WhatUpdatesAloneReadIsHiddenStateOfTheOptimizer) {
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  objects.track("model", *model);
  objects.track("mine", sgd);
  const auto mask = at::ones({8, 4});
  const auto decay = at::full({8}, 0.5);
  const auto shift = at::randn({8});
  const auto recorded = record([&] {
    sgd.zero_grad();
    (model->fc1->forward(x) + shift).sum().backward();
    const at::NoGradGuard no_grad;
    model->fc1->weight.add_(model->fc1->weight.grad() * mask, -0.1);
    model->fc1->bias.add_((model->fc1->bias.grad() + shift) * decay, -0.1);
    return std::vector<at::Tensor>{};
  });
  std::vector<std::string> paths;
  for (const Outside& outside : recorded.outside) paths.push_back(outside.path);
  // `x` and `shift` are read by forward ops.
  EXPECT_THAT(paths,
              ElementsAre("outside[0]", "outside[1]", "mine.<unnamed 1>", "mine.<unnamed 2>"));
  const trace::Buffer* buffer = find_buffer(recorded.recording, "mine.<unnamed 1>");
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(buffer->role, trace::Role::kConstant);
}

STEPTAPE_WITH_BOTH_INTERCEPTORS(ModuleCallsTest);

}  // namespace
}  // namespace steptape::recorder
