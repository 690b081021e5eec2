#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/optim/adam.h>

#include <thread>

#include "recording_test.h"

namespace steptape::recorder {
namespace {

class ModelsTest : public RecorderTest {};

TEST_P(ModelsTest, BatchNormWritesItsStatistics) {
  torch::nn::BatchNorm1d norm(3);
  objects.track("norm", *norm);
  const auto x = at::randn({4, 3});
  const auto step = [&] {
    norm->forward(x).sum().backward();
    norm->zero_grad();
  };
  const auto recording = recording_of(step, {x});
  EXPECT_EQ(text_of(recording.refusals), "");
  const auto index = find_op(recording, "aten::native_batch_norm");
  ASSERT_GE(index, 0);
  ASSERT_EQ(recording.ops.at(index).unannotated_writes.size(), 2u);
  const auto written = recording.ops[index].unannotated_writes[0];
  EXPECT_EQ(recording.buffers.at(recording.tensors.at(written).buffer).path, "norm.running_mean");
}

TEST_P(ModelsTest, BatchNormInEvaluationWritesNothing) {
  torch::nn::BatchNorm1d norm(3);
  norm->eval();
  objects.track("norm", *norm);
  const auto x = at::randn({4, 3});
  const auto recording = recording_of(
      [&] {
        const at::NoGradGuard no_grad;
        norm->forward(x);
      },
      {x});
  EXPECT_EQ(text_of(recording.refusals), "");
  const auto index = find_op(recording, "aten::native_batch_norm");
  ASSERT_GE(index, 0);
  EXPECT_TRUE(recording.ops.at(index).unannotated_writes.empty());
}

TEST_P(ModelsTest, DropoutAgreesWithItself) {
  torch::nn::Dropout dropout(0.5);
  Mlp model;
  objects.track("model", *model);
  const auto x = at::randn({4, 4});
  const auto step = [&] {
    model->zero_grad();
    dropout->forward(model->forward(x)).sum().backward();
  };
  step();
  const auto first = recording_of(step, {x});
  EXPECT_EQ(text_of(first.refusals), "");
  EXPECT_FALSE(trace::first_difference(first, recording_of(step, {x})));
}

TEST_P(ModelsTest, InferenceModeShowsWhatIsInsideComposites) {
  Mlp model;
  objects.track("model", *model);
  const auto x = at::randn({4, 4});
  const auto recording = recording_of(
      [&] {
        const c10::InferenceMode inference;
        model->forward(x);
      },
      {x});
  EXPECT_EQ(text_of(recording.refusals), "");
  EXPECT_THAT(names_of(recording), testing::ElementsAre("aten::t", "aten::addmm", "aten::relu",
                                                        "aten::t", "aten::addmm"));
}

TEST_P(ModelsTest, TiedWeightsAreOneParameter) {
  Mlp first;
  auto pair = torch::nn::Sequential(first->fc1, first->fc1);
  objects.track("pair", *pair);
  objects.track("again", *first->fc1);
  const auto recording = recording_of([&] { first->fc1->forward(at::ones({1, 4})); });
  const auto is_weight = [](const trace::Tracked& tracked) {
    return tracked.role == trace::Role::kParameter &&
           tracked.path.find("weight") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(recording.tracked, is_weight), 1);
  EXPECT_EQ(recording.tracked.at(0).path, "pair.0.weight");
}

TEST_P(ModelsTest, EightThreadsRecordTheirOwnSteps) {
  std::vector<trace::Recording> recordings(8);
  std::vector<torch::nn::Linear> layers;
  for (std::size_t k = 0; k < recordings.size(); ++k) layers.emplace_back(4, 2);
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < recordings.size(); ++k) {
    threads.emplace_back([&, k] {
      torch::nn::Linear& linear = layers[k];
      live::Objects own;
      own.track("linear", *linear);
      const auto x = at::ones({3, 4});
      const auto step = [&]() -> std::vector<at::Tensor> {
        for (std::size_t turn = 0; turn <= k; ++turn) {
          linear->zero_grad();
          linear->forward(x).sum().backward();
        }
        return {};
      };
      for (int repetition = 0; repetition < 5; ++repetition) {
        recordings[k] = recorder::record(step, {{x, {}, true}}, own, chosen()).recording;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t k = 0; k < recordings.size(); ++k) {
    EXPECT_EQ(text_of(recordings[k].refusals), "");
    const auto names = names_of(recordings[k]);
    EXPECT_EQ(std::ranges::count(names, "aten::addmm"), static_cast<std::int64_t>(k + 1));
  }
}

TEST_P(ModelsTest, TwoStepsAlternateInOneThread) {
  const auto x = at::randn({3});
  const auto one = [&] { return recording_of([&] { x.relu(); }, {x}); };
  const auto two = [&] { return recording_of([&] { x.neg().abs(); }, {x}); };
  const auto first = one();
  const auto other = two();
  EXPECT_FALSE(trace::first_difference(first, one()));
  EXPECT_FALSE(trace::first_difference(other, two()));
  EXPECT_TRUE(trace::first_difference(first, other));
}

TEST_P(ModelsTest, ConjugateBitsAreKept) {
  const auto z = at::randn({3, 3}, at::kComplexFloat);
  const auto recording = recording_of([&] { z.mm(z.conj()); }, {z});
  EXPECT_EQ(text_of(recording.refusals), "");
  const auto index = find_op(recording, "aten::mm");
  ASSERT_GE(index, 0);
  const auto id = std::get<trace::TensorRef>(recording.ops.at(index).inputs.at(1).data).id;
  EXPECT_TRUE(recording.tensors.at(id).conj);
}

TEST_P(ModelsTest, GradientsInViewsOfABucketShareItsBuffer) {
  torch::nn::Linear linear(4, 2);
  objects.track("linear", *linear);
  auto bucket = at::zeros({10});
  linear->weight.mutable_grad() = bucket.narrow(0, 0, 8).view({2, 4});
  linear->bias.mutable_grad() = bucket.narrow(0, 8, 2);
  const auto recording = recording_of([&] { linear->forward(at::ones({1, 4})).sum().backward(); });
  EXPECT_EQ(text_of(recording.refusals), "");
  const auto weight = recording.tensors.at(recording.exit_gradients.at(0).tensor).buffer;
  EXPECT_EQ(weight, recording.tensors.at(recording.exit_gradients.at(1).tensor).buffer);
  EXPECT_EQ(recording.buffers.at(weight).path, "linear.weight.grad");
}

STEPTAPE_WITH_BOTH_INTERCEPTORS(ModelsTest);

}  // namespace
}  // namespace steptape::recorder
