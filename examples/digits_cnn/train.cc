// Trains a small convolutional digit classifier under a moving learning rate, eagerly and then
// through Steptape from the same seed, and compares the two bit for bit. Half-way it saves the
// trace with its state: digits_cnn_continue trains the second half again without the model code.
#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "../comparison.h"
#include "../program.h"
#include "../training_state.h"
#include "model.h"
#include "schedule.h"
#include "steptape/steptape.h"

namespace digits_cnn {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;
using StepFunction = std::function<at::Tensor(at::Tensor, at::Tensor)>;

struct Run : examples::Run {
  double accuracy = 0;  ///< of the newest evaluation
};

/// A model and its optimizer, the same in every Learner.
struct Learner {
  Net model = seeded();
  torch::optim::AdamW optimizer{model->parameters(), AdamWOptions().weight_decay(0.05)};

  void set_learning_rate(double rate) {
    for (auto& group : optimizer.param_groups()) {
      static_cast<AdamWOptions&>(group.options()).lr(rate);
    }
  }

  at::Tensor train(const at::Tensor& pixels, const at::Tensor& labels) {
    optimizer.zero_grad();
    auto loss = at::cross_entropy_loss(model->forward(pixels), labels);
    loss.backward();
    optimizer.step();
    return loss;
  }

  /// How many of `labels` the model finds.
  at::Tensor evaluate(const at::Tensor& pixels, const at::Tensor& labels) {
    const at::NoGradGuard no_grad;
    return model->forward(pixels).argmax(1).eq(labels).sum();
  }

 private:
  static Net seeded() {
    at::manual_seed(kSeed);
    return {};
  }
};

/// Trains steps `first` to `last`, with an evaluation now and then.
void train(Run& run, Learner& learner, const digits::Split& data, std::int64_t first,
           std::int64_t last, const StepFunction& step, const StepFunction& evaluate) {
  constexpr std::int64_t kEvaluatedEvery = 50;
  digits::Batches batches(data.train, kBatchSize, kSeed);
  for (std::int64_t i = first; i < last; ++i) {
    learner.set_learning_rate(learning_rate(i));
    const auto batch = batches.at(i);
    run.outcome.add_loss(run.timed([&] { return step(batch.pixels, batch.labels); }));
    if ((i + 1) % kEvaluatedEvery != 0) continue;
    learner.model->eval();
    const auto right = evaluate(data.test.pixels, data.test.labels).item<std::int64_t>();
    learner.model->train();
    run.accuracy = static_cast<double>(right) / static_cast<double>(data.test.count());
  }
}

void train_eagerly(Run& run, const digits::Split& data) {
  Learner learner;
  train(
      run, learner, data, 0, kSteps,
      [&](const at::Tensor& pixels, const at::Tensor& labels) {
        return learner.train(pixels, labels);
      },
      [&](const at::Tensor& pixels, const at::Tensor& labels) {
        return learner.evaluate(pixels, labels);
      });
  examples::add_tensors<AdamWParamState>(run.outcome, *learner.model, learner.optimizer);
  examples::add_host_state<AdamWParamState>(run.outcome, *learner.model, learner.optimizer);
}

/// Prints the table and what came of it: whether the steps gave the eager bits, by replays, and
/// taught the classifier something.
bool report(const Run& eager, const Run& replayed, const steptape::Stats& stats,
            const std::string& explanation) {
  examples::print_table(eager, replayed, stats);
  examples::print_row("test accuracy", examples::text_of(100 * eager.accuracy, 1, "%"),
                      examples::text_of(100 * replayed.accuracy, 1, "%"));
  std::printf("\n%s\n", explanation.c_str());
  const bool identical = examples::report_identity("eager", eager.outcome, replayed.outcome);
  const bool replays = examples::report_replays(stats);
  if (eager.accuracy < 0.95) std::printf("test accuracy is under 95 %%\n");
  return identical && replays && eager.accuracy >= 0.95;
}

bool run(const std::filesystem::path& trace, const std::filesystem::path& csv) {
  if (trace.has_parent_path()) std::filesystem::create_directories(trace.parent_path());
  at::set_num_threads(kThreads);
  const auto data = digits::split(digits::read(csv));
  std::printf("%lld images to train on, %lld to test; %lld steps of %lld\n",
              static_cast<long long>(data.train.count()), static_cast<long long>(data.test.count()),
              static_cast<long long>(kSteps), static_cast<long long>(kBatchSize));
  Run eager;
  train_eagerly(eager, data);

  Learner learner;
  steptape::Session session;
  session.track("model", learner.model).track("optimizer", learner.optimizer);
  auto train_step = session.wrap(
      "train", [&](at::Tensor pixels, at::Tensor labels) { return learner.train(pixels, labels); });
  auto evaluate = session.wrap("eval", [&](at::Tensor pixels, at::Tensor labels) {
    return learner.evaluate(pixels, labels);
  });
  Run replayed;
  replayed.counts = examples::was_replayed(train_step);
  train(replayed, learner, data, 0, kSavedAt, train_step, evaluate);
  session.save(trace.string(), steptape::Session::State::kWith);
  train(replayed, learner, data, kSavedAt, kSteps, train_step, evaluate);
  examples::add_tensors<AdamWParamState>(replayed.outcome, *learner.model, learner.optimizer);
  digits::write(examples::since(kSavedAt, replayed.outcome), digits::beside(trace));
  examples::add_host_state<AdamWParamState>(replayed.outcome, *learner.model, learner.optimizer);

  const bool good = report(eager, replayed, train_step.stats(), session.explain());
  std::printf("trace after %lld steps: %s (%ju bytes)\n", static_cast<long long>(kSavedAt),
              trace.c_str(), static_cast<std::uintmax_t>(std::filesystem::file_size(trace)));
  return good;
}

}  // namespace
}  // namespace digits_cnn

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "digits_cnn", DIGITS_CSV, digits_cnn::run);
}
