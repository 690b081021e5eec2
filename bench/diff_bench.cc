#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "diff/numerics/numeric_differences.h"
#include "diff/stream_diff.h"
#include "tests/trace/fake_run.h"
#include "tests/trace/made_up.h"

/// How long it takes to diff two long op streams and what their ops left, and how much memory the
/// process took at most.
namespace {

using namespace steptape;

trace::Recording long_recording(std::int64_t ops, std::int64_t batch) {
  constexpr int kOpsOfModule = 20;
  // forward and backward, and a quarter of the modules is called twice
  const int modules = static_cast<int>(ops / (kOpsOfModule * 9 / 4 + 1));
  return test::make_up(
      {.seed = 1, .modules = modules, .ops_a_module = kOpsOfModule, .batch = batch});
}

void count(benchmark::State& state, const trace::Recording& a) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["ops"] = static_cast<double>(a.ops.size());
  state.counters["peak_MiB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}

void diff(benchmark::State& state, const trace::Recording& a, const trace::Recording& b) {
  std::size_t cost = 0;
  for (auto _ : state) cost = diff::compare(diff::OpStream(a), diff::OpStream(b)).edits.size();
  count(state, a);
  state.counters["edits"] = static_cast<double>(cost);
}

void equal_streams(benchmark::State& state) {
  const trace::Recording a = long_recording(state.range(0), 32);
  diff(state, a, a);
}

void some_edits(benchmark::State& state) {
  const trace::Recording a = long_recording(state.range(0), 32);
  trace::Recording b = a;
  for (trace::Index at = 0; at < b.ops.size(); at += 1000) test::remove_op(b, at);
  diff(state, a, b);
}

void another_batch(benchmark::State& state) {
  diff(state, long_recording(state.range(0), 32), long_recording(state.range(0), 64));
}

/// Nothing lies in a module: one stream, of which the second lacks every tenth op.
void no_modules(benchmark::State& state) {
  trace::Recording a = long_recording(state.range(0), 32);
  for (trace::Op& op : a.ops) op.module = trace::kNone, op.call = 0;
  a.module_access.clear();
  trace::Recording b = a;
  std::erase_if(b.ops, [&, i = 0](const trace::Op&) mutable { return ++i % 10 == 0; });
  diff(state, a, b);
}

/// Pairs the ops, and finds those that left other bits: all, as every buffer was entered with
/// others.
void other_bits(benchmark::State& state) {
  trace::Recording a = long_recording(state.range(0), 32);
  trace::Recording b = a;
  test::run_fake(a);
  test::FakeRun other;
  for (const trace::Buffer& buffer : b.buffers) other.entered[buffer.path] = 1;
  test::run_fake(b, other);
  std::size_t differing = 0;
  for (auto _ : state) {
    const diff::OpStream stream_a(a);
    const diff::OpStream stream_b(b);
    const diff::StreamDiff found = diff::compare(stream_a, stream_b);
    differing = diff::numeric_differences(stream_a, stream_b, found.alignment).count();
  }
  count(state, a);
  state.counters["differing"] = static_cast<double>(differing);
}

BENCHMARK(equal_streams)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(some_edits)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(another_batch)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(no_modules)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);
BENCHMARK(other_bits)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
