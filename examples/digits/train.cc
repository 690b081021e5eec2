// Trains a digit classifier eagerly, then through Steptape from the same seed, compares the two bit
// for bit, saves the trace with its state and trains on. digits_continue does the last part again
// without the model code.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dataset.h"
#include "model.h"
#include "outcome.h"
#include "schedule.h"
#include "steptape/steptape.h"

namespace digits {
namespace {

using Clock = std::chrono::steady_clock;
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

struct Run {
  Outcome outcome;
  std::vector<double> microseconds;  ///< of each step that counts
  double accuracy = 0;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Trains steps `first` to `last`, evaluating after each epoch. A step's time is kept when `counts`
/// says so after it.
Run train(Learner& learner, const Split& data, std::int64_t first, std::int64_t last,
          const StepFunction& step, const StepFunction& evaluate,
          const std::function<bool()>& counts) {
  Run run;
  Batches batches(data.train, kBatchSize, kSeed);
  for (std::int64_t i = first; i < last; ++i) {
    const auto batch = batches.at(i);
    const auto begin = Clock::now();
    const auto loss = step(batch.pixels, batch.labels);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (counts()) run.microseconds.push_back(took.count());
    run.outcome.add_loss(loss);
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

void print_row(const char* what, double eager, double replay) {
  std::printf("  %-26s %9.0f %9.0f\n", what, eager, replay);
}

void print_table(const Run& eager, const Run& replayed, const steptape::Stats& stats) {
  const double eager_us = median(eager.microseconds);
  const double replay_us = median(replayed.microseconds);
  std::printf("  %-26s %9s %9s\n", "", "eager", "replay");
  print_row("us a step, median", eager_us, replay_us);
  if (replay_us > 0) std::printf("  %-26s %9s %8.2fx\n", "ratio", "", eager_us / replay_us);
  if (!stats.variants.empty()) {
    const auto& plan = stats.variants.front();
    print_row("ops, calls of a replay", static_cast<double>(plan.ops),
              static_cast<double>(plan.calls));
    print_row("bytes of temporaries", static_cast<double>(plan.temporary_bytes),
              static_cast<double>(plan.arena_bytes));
  }
  std::printf("  %-26s %8.1f%% %8.1f%%\n", "test accuracy", 100 * eager.accuracy,
              100 * replayed.accuracy);
}

bool report(const Run& eager, const Run& replayed, const steptape::Stats& stats) {
  const auto mismatch = difference(eager.outcome, replayed.outcome);
  std::printf("bit-identical to eager: %s (%zu losses, %zu tensors)\n",
              mismatch.empty() ? "yes" : "no", replayed.outcome.losses.size(),
              replayed.outcome.digests.size());
  if (!mismatch.empty()) std::printf("  %s\n", mismatch.c_str());
  if (stats.replayed == 0) std::printf("no step was replayed\n");
  if (eager.accuracy < 0.95) std::printf("test accuracy is under 95 %%\n");
  return mismatch.empty() && stats.replayed > 0 && eager.accuracy >= 0.95;
}

bool run(const std::string& trace, const std::filesystem::path& csv) {
  at::set_num_threads(kThreads);
  const auto data = split(read(csv));
  std::printf("%lld images to train on, %lld to test; %lld steps of %lld\n",
              static_cast<long long>(data.train.count()), static_cast<long long>(data.test.count()),
              static_cast<long long>(kSteps), static_cast<long long>(kBatchSize));
  const auto eager = train_eagerly(data);

  Learner learner;
  steptape::Session session({.trace = trace});
  session.track("model", learner.model).track("optimizer", learner.optimizer);
  auto train_step = session.wrap(
      "train", [&](at::Tensor pixels, at::Tensor labels) { return learner.train(pixels, labels); });
  auto evaluate = session.wrap("eval", [&](at::Tensor pixels, at::Tensor labels) {
    return learner.evaluate(pixels, labels);
  });
  std::uint64_t replays = 0;
  const auto counts = [&] {
    return std::exchange(replays, train_step.stats().replayed) != train_step.stats().replayed;
  };
  auto replayed = train(learner, data, 0, kSteps, train_step, evaluate, counts);
  replayed.outcome.add_tensor("generator.default", generator_state());

  print_table(eager, replayed, train_step.stats());
  std::printf("\n%s\n", session.explain().c_str());
  const bool good = report(eager, replayed, train_step.stats());

  session.save(trace, steptape::Session::State::kWith);
  const auto continued =
      train(learner, data, kSteps, kSteps + kContinuedSteps, train_step, evaluate, counts);
  write(continued.outcome, beside(trace));
  std::printf("trace: %s (%ju bytes)\n", trace.c_str(),
              static_cast<std::uintmax_t>(std::filesystem::file_size(trace)));
  return good;
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) try {
  if (argc > 3 || (argc > 1 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: digits_train [TRACE=digits.tape [DIGITS.csv]]\n");
    return 2;
  }
  const std::filesystem::path trace = argc > 1 ? argv[1] : "digits.tape";
  if (trace.has_parent_path()) std::filesystem::create_directories(trace.parent_path());
  return digits::run(trace.string(), argc > 2 ? argv[2] : DIGITS_CSV) ? 0 : 1;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "digits_train: %s\n", problem.what());
  return 2;
}
