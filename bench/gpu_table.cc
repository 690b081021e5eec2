// steptape_gpu_table: eager and replayed training steps on a CUDA device, in interleaved rounds of
// one run, as a table and as a list of JSON objects. Beside them the host's part of a replay, and
// what both hold of the device's memory.
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "steptape/session.h"
#include "workloads.h"

namespace steptape::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 24;

Trainee on_device(const Workload& workload) {
  torch::manual_seed(1);
  Trainee trainee = workload.make();
  trainee.model->to(at::kCUDA);
  trainee.inputs = trainee.inputs.to(at::kCUDA);
  trainee.labels = trainee.labels.to(at::kCUDA);
  return trainee;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Of a step, with all that the device does for it.
template <typename Step>
double us_of(Step&& step, int steps) {
  torch::cuda::synchronize();
  const auto start = Clock::now();
  for (int i = 0; i < steps; ++i) step();
  torch::cuda::synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / steps;
}

std::int64_t peak_bytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].peak;
}

template <typename Step>
std::int64_t peak_of(Step&& step) {
  torch::cuda::synchronize();
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  for (int i = 0; i < 3; ++i) step();
  torch::cuda::synchronize();
  return peak_bytes();
}

nlohmann::json row_of(const Workload& workload, int rounds, double round_ms) {
  const Trainee eager = on_device(workload);
  const Trainee taped = on_device(workload);
  Options options;
  options.verify.rate = 0;
  Session session(options);
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto step = session.wrap("step", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  const auto run_eager = [&] { eager.step(eager.inputs, eager.labels); };
  const auto run_taped = [&] { step(taped.inputs, taped.labels); };
  for (int i = 0; i < kWarmUpSteps; ++i) run_eager();
  const std::int64_t eager_peak = peak_of(run_eager);
  for (int i = 0; i < kWarmUpSteps; ++i) run_taped();
  const int steps = std::max(1, static_cast<int>(round_ms * 1000 / us_of(run_eager, 3)));
  std::vector<double> eager_us, replay_us, host_us;
  for (int round = 0; round < rounds; ++round) {
    eager_us.push_back(us_of(run_eager, steps));
    replay_us.push_back(us_of(run_taped, steps));
    host_us.push_back(step.stats().variants.at(0).device.launch_us);
  }
  const Stats stats = step.stats();
  if (stats.variants.empty() || stats.replayed < static_cast<std::uint64_t>(rounds)) {
    throw std::runtime_error("not every step was replayed: " + step.explain());
  }
  const DeviceStats& device = stats.variants[0].device;
  return {{"workload", workload.name},       {"optimizer", workload.optimizer},
          {"eager_us", median(eager_us)},    {"replay_us", median(replay_us)},
          {"launch_us", median(host_us)},    {"graphs", device.graphs},
          {"nodes", device.nodes},           {"updated", device.updated},
          {"between", device.between},       {"capture_us", device.capture_us},
          {"pool_bytes", device.pool_bytes}, {"static_bytes", device.static_bytes},
          {"eager_peak_bytes", eager_peak},  {"both_peak_bytes", peak_of(run_taped)}};
}

void print(const nlohmann::json& row) {
  const double eager = row["eager_us"], replay = row["replay_us"];
  fmt::print(
      "{:<10} {:<5} {:>9.1f} {:>9.1f} {:>6.2f}x {:>9.1f} {:>6} {:>6} {:>7} {:>10.0f} {:>11}\n",
      row["workload"].get<std::string>(), row["optimizer"].get<std::string>(), eager, replay,
      eager / replay, row["launch_us"].get<double>(), row["graphs"].get<int>(),
      row["nodes"].get<int>(), row["updated"].get<int>(), row["capture_us"].get<double>(),
      row["pool_bytes"].get<std::int64_t>());
}

int run(const std::vector<std::string>& names, int rounds, double round_ms,
        const std::string& json) {
  if (!torch::cuda::is_available()) {
    fmt::print(stderr, "steptape_gpu_table: this machine has no CUDA device\n");
    return 2;
  }
  fmt::print("{:<10} {:<5} {:>9} {:>9} {:>7} {:>9} {:>6} {:>6} {:>7} {:>10} {:>11}\n", "workload",
             "opt", "eager us", "replay us", "ratio", "launch us", "graphs", "nodes", "updated",
             "capture us", "pool bytes");
  nlohmann::json rows = nlohmann::json::array();
  bool has_failed = false;
  for (const Workload& workload : workloads()) {
    const auto is_named = [&](const std::string& name) {
      return workload.name.find(name) != std::string::npos;
    };
    if (!names.empty() && std::ranges::none_of(names, is_named)) continue;
    if (workload.optimizer == "none") continue;
    try {
      rows.push_back(row_of(workload, rounds, round_ms));
      print(rows.back());
    } catch (const std::exception& error) {
      has_failed = true;
      const std::string what = error.what();
      rows.push_back({{"workload", workload.name},
                      {"optimizer", workload.optimizer},
                      {"failure", what.substr(0, what.find('\n'))}});
      fmt::print("{:<10} {:<5} failed: {}\n", workload.name, workload.optimizer, what);
    }
    std::fflush(stdout);
  }
  if (!json.empty()) std::ofstream(json) << rows.dump(2) << '\n';
  return has_failed ? 1 : 0;
}

}  // namespace
}  // namespace steptape::bench

int main(int argc, char** argv) {
  CLI::App app("Eager and replayed steps on a CUDA device, side by side");
  std::vector<std::string> names;
  int rounds = 7;
  double round_ms = 50;
  std::string json;
  app.add_option("--workload", names, "parts of names; without it all");
  app.add_option("--rounds", rounds, "of which the median is taken")->check(CLI::PositiveNumber);
  app.add_option("--round-ms", round_ms, "how long one is, about")->check(CLI::PositiveNumber);
  app.add_option("--json", json, "a file for the rows");
  CLI11_PARSE(app, argc, argv);
  return steptape::bench::run(names, rounds, round_ms, json);
}
