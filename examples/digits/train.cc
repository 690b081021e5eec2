// Trains a digit classifier eagerly, then through Steptape from the same seed,
// compares the two bit for bit, saves the trace with its state and trains on.
// digits_continue does the last part again without the model code.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "../comparison.h"
#include "../program.h"
#include "dataset.h"
#include "model.h"
#include "outcome.h"
#include "schedule.h"
#include "steptape/steptape.h"

namespace digits {
namespace {

using StepFunction = std::function<at::Tensor(at::Tensor, at::Tensor)>;

/// A model and its optimizer, the same in every Learner.
struct Learner {
  Net model = seeded();
  torch::optim::SGD optimizer{model->parameters(),
                              torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4)};

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

  void add_state(Outcome& outcome) const {
    for (const auto& parameter : model->named_parameters()) {
      const auto path = "model." + parameter.key();
      outcome.add_tensor(path, parameter.value());
      const auto& state = *optimizer.state().at(parameter.value().unsafeGetTensorImpl());
      outcome.add_tensor("optimizer.state[" + path + "].momentum_buffer",
                         static_cast<const torch::optim::SGDParamState&>(state).momentum_buffer());
    }
    for (const auto& buffer : model->named_buffers()) {
      outcome.add_tensor("model." + buffer.key(), buffer.value());
    }
  }

 private:
  static Net seeded() {
    at::manual_seed(kSeed);
    return {};
  }
};

struct Run : examples::Run {
  double accuracy = 0;
};

/// Trains steps `first` to `last`, evaluating after each epoch. A step's time
/// is kept when `counts` says so after it.
Run train(Learner& learner, const Split& data, std::int64_t first, std::int64_t last,
          const StepFunction& step, const StepFunction& evaluate,
          const std::function<bool()>& counts) {
  Run run;
  run.counts = counts;
  Batches batches(data.train, kBatchSize, kSeed);
  for (std::int64_t i = first; i < last; ++i) {
    const auto batch = batches.at(i);
    run.outcome.add_loss(run.timed([&] { return step(batch.pixels, batch.labels); }));
    if ((i + 1) % batches.per_epoch() != 0) continue;
    learner.model->eval();
    const auto right = evaluate(data.test.pixels, data.test.labels).item<std::int64_t>();
    learner.model->train();
    run.accuracy = static_cast<double>(right) / static_cast<double>(data.test.count());
  }
  learner.add_state(run.outcome);
  return run;
}

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

Run train_eagerly(const Split& data) {
  Learner learner;
  auto run = train(
      learner, data, 0, kSteps,
      [&](const at::Tensor& pixels, const at::Tensor& labels) {
        return learner.train(pixels, labels);
      },
      [&](const at::Tensor& pixels, const at::Tensor& labels) {
        return learner.evaluate(pixels, labels);
      },
      [] { return true; });
  run.outcome.add_tensor("generator.default", generator_state());
  return run;
}

bool report(const Run& eager, const Run& replayed, const steptape::Stats& stats) {
  const bool identical = examples::report_identity("eager", eager.outcome, replayed.outcome);
  const bool replays = examples::report_replays(stats);
  if (eager.accuracy < 0.95) std::printf("test accuracy is under 95 %%\n");
  return identical && replays && eager.accuracy >= 0.95;
}

bool run(const std::filesystem::path& trace, const std::filesystem::path& csv) {
  if (trace.has_parent_path()) std::filesystem::create_directories(trace.parent_path());
  at::set_num_threads(kThreads);
  const auto data = split(read(csv));
  std::printf("%lld images to train on, %lld to test; %lld steps of %lld\n",
              static_cast<long long>(data.train.count()), static_cast<long long>(data.test.count()),
              static_cast<long long>(kSteps), static_cast<long long>(kBatchSize));
  const auto eager = train_eagerly(data);

  Learner learner;
  steptape::Session session({.trace = trace.string()});
  session.track("model", learner.model).track("optimizer", learner.optimizer);
  auto train_step = session.wrap(
      "train", [&](at::Tensor pixels, at::Tensor labels) { return learner.train(pixels, labels); });
  auto evaluate = session.wrap("eval", [&](at::Tensor pixels, at::Tensor labels) {
    return learner.evaluate(pixels, labels);
  });
  const auto counts = examples::was_replayed(train_step);
  auto replayed = train(learner, data, 0, kSteps, train_step, evaluate, counts);
  replayed.outcome.add_tensor("generator.default", generator_state());

  examples::print_table(eager, replayed, train_step.stats());
  examples::print_row("test accuracy", examples::text_of(100 * eager.accuracy, 1, "%"),
                      examples::text_of(100 * replayed.accuracy, 1, "%"));
  std::printf("\n%s\n", session.explain().c_str());
  const bool good = report(eager, replayed, train_step.stats());

  session.save(trace.string(), steptape::Session::State::kWith);
  const auto continued =
      train(learner, data, kSteps, kSteps + kContinuedSteps, train_step, evaluate, counts);
  write(continued.outcome, beside(trace));
  std::printf("trace: %s (%ju bytes)\n", trace.c_str(),
              static_cast<std::uintmax_t>(std::filesystem::file_size(trace)));
  return good;
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "digits", DIGITS_CSV, digits::run);
}
