// steptape_serving: what a call takes that a service makes again and again: eager LibTorch,
// TorchScript (traced, frozen, optimized) and a player of a trace, in interleaved rounds of one
// run.
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "steptape/player.h"
#include "steptape/session.h"
#include "workloads.h"

namespace steptape::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// One way to answer.
class Server {
 public:
  virtual ~Server() = default;
  virtual const char* name() const = 0;
  virtual at::Tensor answer() = 0;
};

class Eager final : public Server {
 public:
  explicit Eager(const Workload& workload) : trainee_(workload.make()) {}
  const char* name() const override { return "eager"; }
  at::Tensor answer() override {
    const c10::InferenceMode inference;
    return trainee_.forward(trainee_.inputs);
  }

 private:
  Trainee trainee_;
};

/// Weights are constants of the graph, as torch::jit::freeze leaves them.
class Script final : public Server {
 public:
  explicit Script(const Workload& workload) : inputs_(workload.make().inputs) {
    Trainee trainee = workload.make();
    for (at::Tensor& parameter : trainee.model->parameters()) parameter.requires_grad_(false);
    const auto traced = torch::jit::tracer::trace(
        {inputs_},
        [&](torch::jit::Stack stack) -> torch::jit::Stack {
          return {trainee.forward(stack.at(0).toTensor())};
        },
        [](const at::Tensor&) { return std::string(); });
    std::shared_ptr<torch::jit::Graph> graph = traced.first->graph;
    torch::jit::OptimizeFrozenGraph(graph);
    function_ = unit_.create_function("forward", graph);
  }
  const char* name() const override { return "TorchScript"; }
  at::Tensor answer() override {
    const c10::InferenceMode inference;
    return (*function_)({inputs_}).toTensor();
  }

 private:
  at::Tensor inputs_;
  torch::jit::CompilationUnit unit_;
  torch::jit::Function* function_ = nullptr;
};

/// Records and saves what `Played` loads: a training step where there is an optimizer.
std::string recorded(const Workload& workload, const std::filesystem::path& folder) {
  const Trainee trainee = workload.make();
  Session session;
  session.track("model", trainee.model);
  if (trainee.optimizer) session.track("optimizer", trainee.optimizer);
  auto step = session.wrap("answer", [&](at::Tensor x) { return trainee.step(x, trainee.labels); });
  for (int i = 0; i < 6; ++i) step(trainee.inputs);
  const std::string path = folder / "serving.tape";
  session.save(path, Session::State::kWith);
  return path;
}

class Played final : public Server {
 public:
  enum class Results { kNew, kInPlace };
  Played(const Workload& workload, const std::string& trace, Results results)
      : inputs_{workload.make().inputs}, player_(load(trace)), into_(results == Results::kInPlace) {
    results_.push_back(at::empty_like(step_(inputs_[0])));
  }
  const char* name() const override { return into_ ? "player, in place" : "player"; }
  at::Tensor answer() override {
    if (!into_) return step_(inputs_[0]);
    step_.run_into(inputs_, results_);
    return results_[0];
  }

 private:
  std::vector<at::Tensor> inputs_;
  Player player_;
  PlayerStep step_ = player_.step("answer");
  std::vector<at::Tensor> results_;
  bool into_;
};

struct Choice {
  std::vector<int> threads;
  int rounds = 20;
  int calls = 500;
  std::string json;
};

double at_share(std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

class Bench {
 public:
  explicit Bench(Choice choice) : choice_(std::move(choice)) {
    folder_ =
        std::filesystem::temp_directory_path() / ("steptape_serving_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Bench() { std::filesystem::remove_all(folder_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run() {
    measure_start();
    measure_clones();
    fmt::print("{:<20} {:>7}  {:<17} {:>9} {:>9}  {:>7} {:>7}\n", "workload", "threads", "by",
               "p50 us", "p99 us", "p50", "p99");
    for (const Workload& workload : served_workloads()) {
      for (const int threads : choice_.threads) measure(workload, threads);
    }
    if (!choice_.json.empty()) std::ofstream(choice_.json) << rows_.dump(1) << '\n';
  }

 private:
  void measure(const Workload& workload, int threads) {
    at::set_num_threads(threads);
    const std::string trace = recorded(workload, folder_);
    std::vector<std::unique_ptr<Server>> servers;
    servers.push_back(std::make_unique<Eager>(workload));
    servers.push_back(std::make_unique<Script>(workload));
    servers.push_back(std::make_unique<Played>(workload, trace, Played::Results::kNew));
    servers.push_back(std::make_unique<Played>(workload, trace, Played::Results::kInPlace));
    std::vector<std::vector<double>> us(servers.size());
    for (int round = -1; round < choice_.rounds; ++round) {
      for (std::size_t i = 0; i < servers.size(); ++i) {
        for (int call = 0; call < choice_.calls; ++call) {
          const auto start = Clock::now();
          servers[i]->answer();
          const std::chrono::duration<double, std::micro> took = Clock::now() - start;
          if (round >= 0) us[i].push_back(took.count());  // the first one warms up
        }
      }
    }
    for (std::vector<double>& each : us) std::ranges::sort(each);
    for (std::size_t i = 0; i < servers.size(); ++i) {
      const double p50 = at_share(us[i], 0.5), p99 = at_share(us[i], 0.99);
      fmt::print("{:<20} {:>7}  {:<17} {:>9.1f} {:>9.1f}  {:>6.2f}x {:>6.2f}x\n", workload.name,
                 threads, servers[i]->name(), p50, p99, at_share(us[0], 0.5) / p50,
                 at_share(us[0], 0.99) / p99);
      rows_.push_back({{"workload", workload.name},
                       {"threads", threads},
                       {"by", servers[i]->name()},
                       {"p50_us", p50},
                       {"p99_us", p99}});
    }
  }

  /// From the file to a player that is ready, in a process that has loaded LibTorch.
  void measure_start() {
    at::set_num_threads(1);
    const std::vector<Workload> all = workloads();
    const auto found = std::ranges::find_if(all, [](const Workload& workload) {
      return workload.name == "mlp100x16" && workload.optimizer == "adam";
    });
    const std::string trace = recorded(*found, folder_);
    std::vector<double> ms;
    std::uint64_t ops = 0;
    for (int i = 0; i < 11; ++i) {
      const auto start = Clock::now();
      Player player = load(trace);
      ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      ops = player.step("answer").variants().at(0).ops;
    }
    const double first = ms.front();
    std::ranges::sort(ms);
    fmt::print(
        "start: load() of a training step of {} ops: {:.1f} ms the first time, median {:.1f}\n",
        ops, first, ms[ms.size() / 2]);
    rows_.push_back({{"load_ops", ops}, {"first_ms", first}, {"median_ms", ms[ms.size() / 2]}});
  }

  /// Calls a second by several threads, a clone each, with one thread of LibTorch's each.
  void measure_clones() {
    at::set_num_threads(1);
    const Workload workload = served_workloads().at(1);
    const std::string trace = recorded(workload, folder_);
    Player player = load(trace);
    const at::Tensor inputs = workload.make().inputs;
    double alone = 0;
    for (const std::size_t threads : {1, 2, 4}) {
      std::vector<Player> clones;
      for (std::size_t i = 0; i < threads; ++i) clones.push_back(player.clone());
      constexpr int kCalls = 50'000;
      const auto start = Clock::now();
      std::vector<std::thread> callers;
      for (Player& clone : clones) {
        callers.emplace_back([&] {
          PlayerStep step = clone.step("answer");
          for (int i = 0; i < kCalls; ++i) step(inputs);
        });
      }
      for (std::thread& caller : callers) caller.join();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const double rate = static_cast<double>(threads) * kCalls / seconds;
      if (threads == 1) alone = rate;
      fmt::print("clones: {} by {} threads on {} cores: {:.0f} calls a second, {:.2f}x one\n",
                 workload.name, threads, std::thread::hardware_concurrency(), rate, rate / alone);
      rows_.push_back({{"clones", threads}, {"calls_per_second", rate}});
    }
  }

  Choice choice_;
  std::filesystem::path folder_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

int main_of(int argc, char** argv) {
  Choice choice;
  CLI::App app(
      "Times calls of a model in production: eager, TorchScript, and a player of a trace. The "
      "columns at the end are eager's time over this one's.");
  app.add_option("--threads", choice.threads, "numbers of threads; by default one and all");
  app.add_option("--rounds", choice.rounds, "rounds")->capture_default_str();
  app.add_option("--calls", choice.calls, "calls a round")->capture_default_str();
  app.add_option("--json", choice.json, "file to write the figures to");
  CLI11_PARSE(app, argc, argv);
  if (choice.threads.empty()) {
    choice.threads = {1};
    const int all = static_cast<int>(std::thread::hardware_concurrency());
    if (all > 1) choice.threads.push_back(all);
  }
  Bench(choice).run();
  return 0;
}

}  // namespace
}  // namespace steptape::bench

int main(int argc, char** argv) try {
  return steptape::bench::main_of(argc, argv);
} catch (const std::exception& problem) {
  fmt::print(stderr, "steptape_serving: {}\n", problem.what());
  return 1;
}
