// steptape_table: eager and replayed steps of every workload in interleaved rounds of one run, for
// one thread and for all, as a table and as a list of JSON objects.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "live/objects.h"
#include "live_bytes.h"
#include "recorder/intercept/interceptor.h"
#include "recorder/recorder.h"
#include "steptape/session.h"
#include "tools/torch/floor.h"
#include "workloads.h"

namespace steptape::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 12;

struct Choice {
  std::vector<std::string> names;       ///< parts of workloads' names; empty: all
  std::vector<std::string> optimizers;  ///< empty: all
  std::vector<int> threads;
  int rounds = 7;
  double round_ms = 20;
  bool flushes_denormals = false;
  std::string json;
};

/// One way to do the step.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual void step() = 0;
  /// What stands against its times; empty where nothing does.
  virtual std::string problem() const { return {}; }
};

class Eager final : public Contestant {
 public:
  explicit Eager(const Workload& workload) : trainee_(workload.make()) {}
  void step() override { trainee_.step(trainee_.inputs, trainee_.labels); }

 private:
  Trainee trainee_;
};

class Replayed final : public Contestant {
 public:
  explicit Replayed(const Workload& workload) : trainee_(workload.make()), session_(options()) {
    session_.track("model", trainee_.model);
    if (trainee_.optimizer) session_.track("optimizer", trainee_.optimizer);
  }
  void step() override { step_(trainee_.inputs, trainee_.labels); }
  std::string problem() const override {
    const Stats stats = step_.stats();
    const bool is_replayed = !stats.variants.empty() && stats.steps - stats.replayed < kWarmUpSteps;
    return is_replayed ? "" : "not every step was replayed: " + step_.explain();
  }
  PlanStats plan() const { return step_.stats().variants.at(0); }

 private:
  static Options options() {
    Options options;
    options.verify.rate = 0;
    return options;
  }

  Trainee trainee_;
  Session session_;
  Step<at::Tensor(at::Tensor, at::Tensor)> step_ =
      session_.wrap("step", [this](at::Tensor x, at::Tensor y) { return trainee_.step(x, y); });
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double us_of(Contestant& contestant, int steps) {
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) contestant.step();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / steps;
}

/// Medians of rounds in which each has its turn.
std::vector<double> race(const std::vector<Contestant*>& contestants, const Choice& choice) {
  std::vector<int> steps;
  for (Contestant* contestant : contestants) {
    for (int i = 0; i < kWarmUpSteps; ++i) contestant->step();
    steps.push_back(std::max(1, static_cast<int>(choice.round_ms * 1000 / us_of(*contestant, 3))));
  }
  std::vector<std::vector<double>> times(contestants.size());
  for (int round = 0; round < choice.rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      times[i].push_back(us_of(*contestants[i], steps[i]));
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& each : times) medians.push_back(median(std::move(each)));
  return medians;
}

struct Recorded {
  double us = 0;
  double floor_us = 0;
};

/// What a recorded step costs, and what its ops cannot cost less than.
Recorded record(const Workload& workload) {
  const Trainee trainee = workload.make();
  live::Objects objects;
  objects.track("model", trainee.model);
  if (trainee.optimizer) objects.track("optimizer", trainee.optimizer);
  std::vector<recorder::Argument> arguments = {{.tensor = trainee.inputs, .fact = {}}};
  if (trainee.labels.defined()) arguments.push_back({.tensor = trainee.labels, .fact = {}});
  const auto once = [&] {
    return recorder::record(
        [&] { return std::vector<at::Tensor>{trainee.step(trainee.inputs, trainee.labels)}; },
        arguments, objects, recorder::interceptor(Interception::kFakeKey));
  };
  std::vector<double> times;
  recorder::Recorded recorded;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    recorded = once();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return {median(std::move(times)), tools::floor_us(recorded.recording)};
}

/// Of live tensors, in a step after the warm-up.
struct Peaks {
  std::int64_t eager = 0;
  std::int64_t replayed = 0;
};

std::int64_t peak_of(const std::function<std::unique_ptr<Contestant>()>& make) {
  LiveBytes bytes;
  const std::unique_ptr<Contestant> contestant = make();
  for (int i = 0; i < kWarmUpSteps; ++i) contestant->step();
  bytes.restart();
  contestant->step();
  return bytes.peak();
}

Peaks peaks_of(const Workload& workload) {
  return {peak_of([&] { return std::make_unique<Eager>(workload); }),
          peak_of([&] { return std::make_unique<Replayed>(workload); })};
}

nlohmann::json row(const Workload& workload, int threads, double eager_us, double replay_us,
                   const Recorded& recorded, const PlanStats& plan, const Peaks& peaks) {
  return {{"workload", workload.name},
          {"optimizer", workload.optimizer},
          {"threads", threads},
          {"eager_us", eager_us},
          {"replay_us", replay_us},
          {"floor_us", recorded.floor_us},
          {"record_us", recorded.us},
          {"plan_us", plan.plan_us},
          {"arena_bytes", plan.arena_bytes},
          {"max_live_bytes", plan.max_live_bytes},
          {"eager_peak_bytes", peaks.eager},
          {"replay_peak_bytes", peaks.replayed}};
}

void print_head() {
  fmt::print("{:<10} {:<5} {:>2} {:>9} {:>9} {:>6} {:>9} {:>6} {:>9} {:>8} {:>10}\n", "workload",
             "opt", "th", "eager us", "replay us", "ratio", "floor us", "/floor", "record us",
             "plan us", "arena");
}

void print(const nlohmann::json& row) {
  const double eager = row["eager_us"], replay = row["replay_us"], floor = row["floor_us"];
  fmt::print(
      "{:<10} {:<5} {:>2} {:>9.1f} {:>9.1f} {:>5.2f}x {:>9.1f} {:>5.2f}x {:>9.0f} {:>8.0f} "
      "{:>10}\n",
      row["workload"].get<std::string>(), row["optimizer"].get<std::string>(),
      row["threads"].get<int>(), eager, replay, eager / replay, floor, replay / floor,
      row["record_us"].get<double>(), row["plan_us"].get<double>(),
      row["arena_bytes"].get<std::uint64_t>());
  std::fflush(stdout);
}

/// Its row; empty, and said why, where not every step was replayed.
std::optional<nlohmann::json> measure(const Workload& workload, int threads, const Choice& choice) {
  Eager eager(workload);
  Replayed replayed(workload);
  const std::vector<double> us = race({&eager, &replayed}, choice);
  if (const std::string problem = replayed.problem(); !problem.empty()) {
    fmt::print("{} {}: {}", workload.name, workload.optimizer, problem);
    return std::nullopt;
  }
  return row(workload, threads, us[0], us[1], record(workload), replayed.plan(),
             peaks_of(workload));
}

bool is_chosen(const std::vector<std::string>& chosen, const std::string& name) {
  return chosen.empty() || std::ranges::find(chosen, name) != chosen.end();
}

int run(const Choice& choice) {
  auto table = nlohmann::json::array();
  bool is_whole = true;
  print_head();
  for (const int threads : choice.threads) {
    at::set_num_threads(threads);
    for (const Workload& workload : workloads()) {
      if (!is_chosen(choice.names, workload.name)) continue;
      if (!is_chosen(choice.optimizers, workload.optimizer)) continue;
      const auto row = measure(workload, threads, choice);
      is_whole &= row.has_value();
      if (!row) continue;
      print(*row);
      table.push_back(*row);
    }
  }
  if (!choice.json.empty()) {
    std::ofstream file(choice.json);
    file << table.dump(1) << '\n';
    if (!file.flush()) {
      fmt::print(stderr, "{} could not be written\n", choice.json);
      return 2;
    }
  }
  return is_whole ? 0 : 1;
}

}  // namespace
}  // namespace steptape::bench

int main(int argc, char** argv) {
  using steptape::bench::Choice;
  Choice choice;
  const int all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  choice.threads = all > 1 ? std::vector<int>{1, all} : std::vector<int>{1};
  CLI::App app("Eager and replayed steps of small and medium models, side by side.");
  app.add_option("--workload", choice.names, "these alone");
  app.add_option("--optimizer", choice.optimizers, "these alone: sgd, adam, adamw, none");
  app.add_option("--threads", choice.threads, "of LibTorch, one after the other")
      ->capture_default_str();
  app.add_option("--rounds", choice.rounds, "medians are of so many rounds")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--round-ms", choice.round_ms, "how long each has its turn in a round")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--flush-denormals", choice.flushes_denormals,
               "take denormal numbers for zeros, eager and replayed");
  app.add_option("--json", choice.json, "write the rows to this file, too");
  CLI11_PARSE(app, argc, argv);
  at::globalContext().setFlushDenormal(choice.flushes_denormals);
  return steptape::bench::run(choice);
}
