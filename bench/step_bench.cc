// One run prints, for each model: an eager step, a recorded step and a replayed step, what they
// keep alive at most, and what planning took; then how long `steptape info` takes on the demo's
// trace.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "learners.h"
#include "live/objects.h"
#include "live_bytes.h"
#include "recorder/interceptor.h"
#include "recorder/recorder.h"
#include "steptape/session.h"

namespace steptape::bench {
namespace {

constexpr int kWarmUpSteps = 20;

void eager_step(benchmark::State& state, const LearnerKind& kind) {
  const auto learner = kind.make();
  const auto step = [&] { benchmark::DoNotOptimize(learner.step(learner.inputs, learner.labels)); };
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  for (auto _ : state) step();
  state.counters["peak_bytes"] = static_cast<double>(LiveBytes::peak_of(step));
}

void recorded_step(benchmark::State& state, const LearnerKind& kind) {
  const auto learner = kind.make();
  live::Objects objects;
  objects.track("model", learner.model);
  objects.track("optimizer", std::shared_ptr<torch::optim::Optimizer>(learner.optimizer));
  auto& interceptor = recorder::interceptor(recorder::InterceptorKind::kDispatchMode);
  const auto step = [&] {
    auto recorded = recorder::record(
        [&] { return std::vector<at::Tensor>{learner.step(learner.inputs, learner.labels)}; },
        {{.tensor = learner.inputs, .fact = {}}, {.tensor = learner.labels, .fact = {}}}, objects,
        interceptor);
    benchmark::DoNotOptimize(recorded.recording.ops.data());
    return recorded.recording.ops.size();
  };
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  std::size_t ops = 0;
  for (auto _ : state) ops = step();
  state.counters["ops"] = static_cast<double>(ops);
  state.counters["peak_bytes"] = static_cast<double>(LiveBytes::peak_of([&] { step(); }));
}

void replayed_step(benchmark::State& state, const LearnerKind& kind) {
  const auto learner = kind.make();
  Session session({.trace = {}, .verify = {.first = true, .rate = 0}});
  session.track("model", learner.model).track("optimizer", learner.optimizer);
  const auto train =
      session.wrap("train", [&](at::Tensor x, at::Tensor y) { return learner.step(x, y); });
  const auto step = [&] { benchmark::DoNotOptimize(train(learner.inputs, learner.labels)); };
  for (int i = 0; i < kWarmUpSteps; ++i) step();
  const auto before = train.stats();
  for (auto _ : state) step();
  const auto after = train.stats();
  if (after.steps - before.steps !=
      after.replayed - before.replayed + after.audits - before.audits) {
    state.SkipWithError(("not every step was replayed: " + train.explain()).c_str());
    return;
  }
  const auto& plan = after.variants.at(0);
  state.counters["ops"] = static_cast<double>(plan.ops);
  state.counters["calls"] = static_cast<double>(plan.calls);
  state.counters["arena_bytes"] = static_cast<double>(plan.arena_bytes);
  state.counters["plan_us_an_op"] = plan.plan_us / static_cast<double>(plan.ops);
  state.counters["peak_bytes"] = static_cast<double>(LiveBytes::peak_of(step));
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

void register_all() {
  for (const auto& kind : learner_kinds()) {
    const auto add = [&](const char* what, auto run) {
      benchmark::RegisterBenchmark((kind.name + "/" + what).c_str(), run, kind)
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
    };
    add("eager", eager_step);
    add("recorded", recorded_step);
    add("replayed", replayed_step);
  }
  if (const char* trace = std::getenv("STEPTAPE_BENCH_TRACE")) {
    benchmark::RegisterBenchmark("steptape_info", info, std::string(trace))
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace
}  // namespace steptape::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  steptape::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
