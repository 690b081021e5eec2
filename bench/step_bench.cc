// One run, on one thread, prints for each model: an eager, a recorded, a replayed and an audited
// step (a trial costs the same), what they keep alive at most, and what planning took; then how
// long formulas take, and `steptape info` on the demo's trace.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks.h"
#include "learners.h"
#include "live/objects.h"
#include "live_bytes.h"
#include "recorder/intercept/interceptor.h"
#include "recorder/recorder.h"
#include "replayer/planner/numbers/evaluator.h"
#include "steptape/session.h"

namespace steptape::bench {
namespace {

constexpr int kWarmUpSteps = 20;

using Counters = benchmark::UserCounters;

class EagerStep {
 public:
  explicit EagerStep(const LearnerKind& kind) : learner_(kind.make()) {}
  void operator()() { benchmark::DoNotOptimize(learner_.step(learner_.inputs, learner_.labels)); }
  std::string report(Counters& /*counters*/) const { return {}; }

 private:
  Learner learner_;
};

class RecordedStep {
 public:
  explicit RecordedStep(const LearnerKind& kind) : learner_(kind.make()) {
    objects_.track("model", learner_.model);
    objects_.track("optimizer", std::shared_ptr<torch::optim::Optimizer>(learner_.optimizer));
  }
  void operator()() {
    const auto recorded = recorder::record(
        [&] { return std::vector<at::Tensor>{learner_.step(learner_.inputs, learner_.labels)}; },
        {{.tensor = learner_.inputs, .fact = {}}, {.tensor = learner_.labels, .fact = {}}},
        objects_, recorder::interceptor(Interception::kFakeKey));
    ops_ = recorded.recording.ops.size();
  }
  std::string report(Counters& counters) const {
    counters["ops"] = static_cast<double>(ops_);
    return {};
  }

 private:
  Learner learner_;
  live::Objects objects_;
  std::size_t ops_ = 0;
};

Options options_of(double rate) {
  Options options;
  options.verify.rate = rate;
  return options;
}

class ReplayedStep {
 public:
  explicit ReplayedStep(const LearnerKind& kind, Options options = options_of(0))
      : learner_(kind.make()), session_(std::move(options)) {
    session_.track("model", learner_.model).track("optimizer", learner_.optimizer);
  }
  void operator()() { benchmark::DoNotOptimize(step_(learner_.inputs, learner_.labels)); }
  /// What stands against the timing, or nothing.
  std::string report(Counters& counters) const {
    const auto stats = step_.stats();
    if (stats.variants.empty() || stats.steps - stats.replayed - stats.audits >= kWarmUpSteps) {
      return "not every step was replayed: " + step_.explain();
    }
    const auto& plan = stats.variants.front();
    counters["ops"] = static_cast<double>(plan.ops);
    counters["calls"] = static_cast<double>(plan.calls);
    counters["arena_bytes"] = static_cast<double>(plan.arena_bytes);
    counters["plan_us_an_op"] = plan.plan_us / static_cast<double>(plan.ops);
    return {};
  }

 private:
  Learner learner_;
  Session session_;
  Step<at::Tensor(at::Tensor, at::Tensor)> step_ =
      session_.wrap("train", [this](at::Tensor x, at::Tensor y) { return learner_.step(x, y); });
};

/// Every step is an audit: what a trial costs.
class AuditedStep : public ReplayedStep {
 public:
  explicit AuditedStep(const LearnerKind& kind) : ReplayedStep(kind, options_of(1)) {}
};

/// A folder that goes with its files.
struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("steptape_bench_" + std::to_string(getpid()));
};

/// A line for each call goes into a file.
class LedgerStep : Folder, public ReplayedStep {
 public:
  explicit LedgerStep(const LearnerKind& kind, bool digests = false)
      : ReplayedStep(kind, options_in(path, digests)) {}

 private:
  static Options options_in(const std::filesystem::path& folder, bool digests) {
    Options options = options_of(0);
    options.trace = folder / "run.tape";
    options.digests = digests;
    return options;
  }
};

/// The same with digests of inputs, gradients, parameters and generators.
class DigestStep : public LedgerStep {
 public:
  explicit DigestStep(const LearnerKind& kind) : LedgerStep(kind, /*digests=*/true) {}
};

/// The two bias corrections of Adam for so many parameters, each with a counter of its own.
void evaluate_formulas(benchmark::State& state) {
  using namespace trace;
  Recording recording;
  recording.leaves = {{LeafKind::kHyperparameter, "lr"},
                      {LeafKind::kHyperparameter, "beta1"},
                      {LeafKind::kHyperparameter, "beta2"}};
  std::vector<double> values = {1e-3, 0.9, 0.999};
  for (Index i = 0; i < static_cast<Index>(state.range(0)); ++i) {
    const Formula t = leaf(3 + i) + constant(1);
    recording.leaves.push_back({LeafKind::kStateNumber, "step" + std::to_string(i)});
    recording.formulas.push_back(square_root(constant(1) - power(leaf(2), t)));
    recording.formulas.push_back(-(leaf(0) / (constant(1) - power(leaf(1), t))));
    values.push_back(0);
  }
  replayer::Evaluator evaluator(recording);
  for (auto _ : state) {
    for (std::size_t i = 3; i < values.size(); ++i) values[i] += 1;
    evaluator.begin(values);
  }
  state.counters["ns_a_parameter"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// Live tensor bytes at the highest point of one step: parameters, state and all.
template <typename Kind>
std::int64_t peak_bytes(const LearnerKind& kind) {
  LiveBytes bytes;
  Kind step(kind);
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  bytes.restart();
  step();
  return bytes.peak();
}

template <typename Kind>
void time_step(benchmark::State& state, const LearnerKind& kind) {
  Kind step(kind);
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  for (auto _ : state) step();
  const auto problem = step.report(state.counters);
  if (!problem.empty()) {
    state.SkipWithError(problem.c_str());
    return;
  }
  state.counters["peak_bytes"] = static_cast<double>(peak_bytes<Kind>(kind));
}

void info(benchmark::State& state, const std::string& trace) {
  const auto command = "'" STEPTAPE_TOOL "' info '" + trace + "' >/dev/null";
  for (auto _ : state) {
    if (std::system(command.c_str()) != 0) {
      state.SkipWithError(("failed: " + command).c_str());
      return;
    }
  }
}

}  // namespace

void register_steps() {
  for (const auto& kind : learner_kinds()) {
    const auto add = [&](const char* what, auto run) {
      benchmark::RegisterBenchmark((kind.name + "/" + what).c_str(), run, kind)
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
    };
    add("eager", time_step<EagerStep>);
    add("recorded", time_step<RecordedStep>);
    add("replayed", time_step<ReplayedStep>);
    add("audited", time_step<AuditedStep>);
    add("replayed_ledger", time_step<LedgerStep>);
    add("replayed_digests", time_step<DigestStep>);
  }
  benchmark::RegisterBenchmark("formulas", evaluate_formulas)->Arg(1000);
  if (const char* trace = std::getenv("STEPTAPE_BENCH_TRACE")) {
    benchmark::RegisterBenchmark("steptape_info", info, std::string(trace))
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace steptape::bench
