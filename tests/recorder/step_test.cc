#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <torch/optim/adam.h>

#include <algorithm>

#include "recording_test.h"

namespace steptape::recorder {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

std::vector<std::string>* observed = nullptr;

// LibTorch itself announces each op that reaches a dispatch mode; that is a marker, not an op.
std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  if (std::string_view(function.name()) != "PythonDispatchMode") {
    observed->push_back(function.name());
  }
  return nullptr;
}

/// The names that RecordFunction announces while `run` runs.
template <typename Run>
std::vector<std::string> announced(Run&& run) {
  std::vector<std::string> names;
  observed = &names;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&observe).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return names;
}

bool is_subsequence(const std::vector<std::string>& part, const std::vector<std::string>& whole) {
  auto next = part.begin();
  for (const std::string& name : whole) {
    if (next != part.end() && *next == name) ++next;
  }
  return next == part.end();
}

class StepTest : public RecorderTest {
 protected:
  StepTest() {
    objects.track("model", *model);
    objects.track("optimizer", optimizer);
  }

  std::vector<at::Tensor> train() {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model->forward(images), labels);
    loss.backward();
    optimizer.step();
    return {loss};
  }

  Recorded record_step() {
    return record([this] { return train(); }, {images, labels});
  }

  Mlp model;
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.1)};
  at::Tensor images = at::randn({5, 4});
  at::Tensor labels = at::randint(0, 3, {5}, at::kLong);
};

TEST_P(StepTest, IsWrittenOpByOp) {
  const std::vector<std::string> stream = {"aten::t",
                                           "aten::addmm",
                                           "aten::relu",
                                           "aten::t",
                                           "aten::addmm",
                                           "aten::_log_softmax",
                                           "aten::nll_loss_forward",
                                           "aten::ones_like",
                                           "aten::nll_loss_backward",
                                           "aten::_log_softmax_backward_data",
                                           "aten::t",
                                           "aten::mm",
                                           "aten::t",
                                           "aten::mm",
                                           "aten::t",
                                           "aten::sum.dim_IntList",
                                           "aten::view",
                                           "aten::detach",
                                           "aten::t",
                                           "aten::detach",
                                           "aten::threshold_backward",
                                           "aten::t",
                                           "aten::mm",
                                           "aten::t",
                                           "aten::sum.dim_IntList",
                                           "aten::view",
                                           "aten::detach",
                                           "aten::t",
                                           "aten::detach",
                                           "aten::add_.Tensor",
                                           "aten::add_.Tensor",
                                           "aten::add_.Tensor",
                                           "aten::add_.Tensor"};
  const auto recorded = record_step();
  EXPECT_EQ(text_of(recorded.recording.refusals), "");
  EXPECT_THAT(names_of(recorded.recording), ElementsAreArray(stream));
  EXPECT_FALSE(recorded.is_warm_up());
  EXPECT_THAT(recorded.outside, IsEmpty());
}

TEST_P(StepTest, HoldsOnlyWhatValidationAccepts) {
  EXPECT_NO_THROW(trace::validate(record_step().recording));
}

TEST_P(StepTest, AgreesWithItsNextRecording) {
  train();
  const auto first = record_step().recording;
  const auto second = record_step().recording;
  const auto difference = trace::first_difference(first, second);
  EXPECT_FALSE(difference) << difference->path << ": " << difference->expected << " → "
                           << difference->found;
}

TEST_P(StepTest, GivesTheBitsOfTheEagerStep) {
  at::Tensor weight;
  at::Tensor loss;
  {
    at::manual_seed(3);
    Mlp copy;
    torch::optim::SGD sgd(copy->parameters(), torch::optim::SGDOptions(0.1));
    loss = torch::nn::functional::cross_entropy(copy->forward(images), labels);
    loss.backward();
    sgd.step();
    weight = copy->fc1->weight.detach().clone();
  }
  at::manual_seed(3);
  Mlp again;
  for (std::size_t k = 0; k < model->parameters().size(); ++k) {
    model->parameters()[k].detach().copy_(again->parameters()[k].detach());
  }
  const auto recorded = record_step();
  EXPECT_TRUE(at::equal(recorded.results[0], loss));
  EXPECT_TRUE(at::equal(model->fc1->weight, weight));
}

TEST_P(StepTest, LeavesTheStreamOfRecordFunctionAsItWas) {
  train();
  const auto off = announced([this] { train(); });
  Recorded recorded;
  const auto on = announced([&] { recorded = record_step(); });
  EXPECT_EQ(on, off);
  std::vector<std::string> written;
  for (const trace::Op& op : recorded.recording.ops) {
    written.push_back(recorded.recording.operator_of(op).name);
  }
  EXPECT_TRUE(is_subsequence(written, on));
}

TEST_P(StepTest, StealsGradientsRatherThanCopyingThem) {
  const auto recording = record_step().recording;
  EXPECT_EQ(find_op(recording, "aten::clone"), -1);
  const auto* gradient = find_buffer(recording, "model.fc1.weight.grad");
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient->role, trace::Role::kGradient);
}

TEST_P(StepTest, TiesBackwardOpsToModulesOfForwardOps) {
  const auto recording = record_step().recording;
  const auto op = recording.ops.at(22);
  EXPECT_EQ(recording.operator_of(op).name, "aten::mm");
  EXPECT_EQ(op.phase, trace::Phase::kBackward);
  EXPECT_EQ(recording.modules.at(op.module).path, "model.fc1");
  EXPECT_EQ(op.sequence, recording.ops.at(1).sequence);
  ASSERT_EQ(recording.module_access.size(), 3u);
  EXPECT_EQ(recording.modules.at(recording.module_access[2].module).path, "model.fc2");
  EXPECT_EQ(recording.module_access[2].first_op, 3u);
}

TEST_P(StepTest, NamesEveryRole) {
  const auto recording = record_step().recording;
  EXPECT_EQ(find_buffer(recording, "inputs[0]")->role, trace::Role::kInput);
  EXPECT_EQ(find_buffer(recording, "model.fc2.bias")->role, trace::Role::kParameter);
  EXPECT_EQ(find_buffer(recording, "results[0]")->role, trace::Role::kResult);
  EXPECT_EQ(recording.exit_gradients.at(2).parameter, "model.fc2.weight");
  EXPECT_EQ(
      recording.buffers.at(recording.tensors.at(recording.exit_gradients[2].tensor).buffer).path,
      "model.fc2.weight.grad");
}

TEST_P(StepTest, KnowsUserScopes) {
  const auto recording = recording_of(
      [this] {
        RECORD_USER_SCOPE("epoch");
        {
          RECORD_USER_SCOPE("forward");
          images.relu();
        }
        images.abs();
      },
      {images});
  EXPECT_EQ(recording.scopes.at(recording.ops.at(0).scope), "epoch > forward");
  EXPECT_EQ(recording.scopes.at(recording.ops.at(1).scope), "epoch");
}

TEST_P(StepTest, AccumulatesIntoGradientsThatExist) {
  train();
  const auto recording =
      recording_of([this] { model->forward(images).sum().backward(); }, {images});
  EXPECT_EQ(text_of(recording.refusals), "");
  EXPECT_NE(find_op(recording, "aten::add_.Tensor"), -1);
  const auto* gradient = find_buffer(recording, "model.fc1.weight.grad");
  EXPECT_EQ(gradient->role, trace::Role::kGradient);
  EXPECT_EQ(recording.tracked.back().role, trace::Role::kGradient);
}

TEST_P(StepTest, SaysWhichGradientsStayUndefined) {
  const auto recording = recording_of([this] {
    optimizer.zero_grad();
    model->fc2->forward(at::ones({1, 8})).sum().backward();
  });
  EXPECT_EQ(recording.exit_gradients.at(0).parameter, "model.fc1.weight");
  EXPECT_EQ(recording.exit_gradients[0].tensor, trace::kNoTensor);
  EXPECT_NE(recording.exit_gradients[2].tensor, trace::kNoTensor);
}

TEST_P(StepTest, LetsExceptionsOfTheStepPass) {
  struct Mine {};
  EXPECT_THROW(record([this]() -> std::vector<at::Tensor> {
                 images.relu();
                 throw Mine{};
               }),
               Mine);
  EXPECT_FALSE(is_recording());
  EXPECT_EQ(text_of(record_step().recording.refusals), "");
}

TEST_P(StepTest, LetsExceptionsOfOpsPass) {
  EXPECT_THROW(recording_of([this] { at::mm(images, images); }), c10::Error);
  EXPECT_FALSE(is_recording());
}

TEST_P(StepTest, IsNotRecordedInsideAnother) {
  bool was_recording = false;
  recording_of([&] {
    was_recording = is_recording();
    EXPECT_ANY_THROW(record_step());
  });
  EXPECT_TRUE(was_recording);
}

class OptimizerTest : public RecorderTest {};

TEST_P(OptimizerTest, StateThatComesIntoBeingMakesAWarmUp) {
  Mlp model;
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-3));
  objects.track("model", *model);
  objects.track("optimizer", adam);
  const auto x = at::randn({5, 4});
  const auto step = [&] {
    adam.zero_grad();
    model->forward(x).sum().backward();
    adam.step();
    return std::vector<at::Tensor>{};
  };
  const auto first = record(step, {x});
  EXPECT_TRUE(first.is_warm_up());
  EXPECT_EQ(first.recording.status, trace::Status::kWarmUp);
  EXPECT_EQ(text_of(first.recording.refusals), "");
  const auto second = record(step, {x});
  EXPECT_FALSE(second.is_warm_up());
  EXPECT_EQ(text_of(second.recording.refusals), "");
  const auto* state = find_buffer(second.recording, "optimizer.state[model.fc1.weight].exp_avg");
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(state->role, trace::Role::kOptimizerState);
}

STEPTAPE_WITH_BOTH_INTERCEPTORS(StepTest);
STEPTAPE_WITH_BOTH_INTERCEPTORS(OptimizerTest);

}  // namespace
}  // namespace steptape::recorder
