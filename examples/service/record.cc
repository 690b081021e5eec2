// Trains the digits ConvNet for a while, records what the service needs of it, a step that learns
// and one that predicts, and saves both with their state. Then it trains on, eagerly, to show where
// a service that learns from the same batches must come out, bit for bit.
#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "../digits_cnn/model.h"
#include "../program.h"
#include "../training_state.h"
#include "lesson.h"
#include "steptape/steptape.h"

namespace service {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

struct Learner {
  digits_cnn::Net model = seeded();
  torch::optim::AdamW optimizer{model->parameters(), AdamWOptions().weight_decay(0.05)};

  void set_learning_rate(double rate) {
    for (auto& group : optimizer.param_groups()) {
      static_cast<AdamWOptions&>(group.options()).lr(rate);
    }
  }

  at::Tensor learn(const at::Tensor& pixels, const at::Tensor& labels) {
    optimizer.zero_grad();
    auto loss = at::cross_entropy_loss(model->forward(pixels), labels);
    loss.backward();
    optimizer.step();
    return loss;
  }

  at::Tensor predict(const at::Tensor& pixels) {
    const at::NoGradGuard no_grad;
    return at::softmax(model->forward(pixels), 1);
  }

 private:
  static digits_cnn::Net seeded() {
    at::manual_seed(kSeed);
    return {};
  }
};

bool run(const std::filesystem::path& trace, const std::filesystem::path& csv) {
  if (trace.has_parent_path()) std::filesystem::create_directories(trace.parent_path());
  at::set_num_threads(1);
  const auto data = digits::split(digits::read(csv));
  digits::Batches batches(data.train, kBatchSize, kSeed);
  Learner learner;
  steptape::Session session;
  session.track("model", learner.model).track("optimizer", learner.optimizer);
  auto learn = session.wrap(
      "learn", [&](at::Tensor pixels, at::Tensor labels) { return learner.learn(pixels, labels); });
  auto predict =
      session.wrap("predict", [&](at::Tensor pixels) { return learner.predict(pixels); });

  for (std::int64_t i = 0; i < kRecorded; ++i) {
    learner.set_learning_rate(learning_rate(i));
    const auto batch = batches.at(i);
    learn(batch.pixels, batch.labels);
    learner.model->eval();
    for (const std::int64_t count : kPredicted)
      predict(data.test.pixels.narrow(0, 0, count).clone());
    learner.model->train();
  }
  session.save(trace.string(), steptape::Session::State::kWith);
  std::printf("%s: \"learn\" from %lld images, \"predict\" for 1 and 16, after %lld steps\n%s\n",
              trace.c_str(), static_cast<long long>(kBatchSize), static_cast<long long>(kRecorded),
              session.explain().c_str());

  digits::Outcome expected;
  for (std::int64_t i = kRecorded; i < kRecorded + kLearned; ++i) {
    learner.set_learning_rate(learning_rate(i));
    const auto batch = batches.at(i);
    expected.add_loss(learner.learn(batch.pixels, batch.labels));
  }
  examples::add_tensors<AdamWParamState>(expected, *learner.model, learner.optimizer);
  digits::write(expected, digits::beside(trace));
  std::printf("%lld more steps, eagerly: %s\n", static_cast<long long>(kLearned),
              digits::beside(trace).c_str());
  return learn.stats().replayed > 0 && predict.stats().variants.size() == kPredicted.size();
}

}  // namespace
}  // namespace service

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "service", DIGITS_CSV, service::run);
}
