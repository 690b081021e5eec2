// What guards cost: checking all of a plan, beside a loop that only compares the storage and data
// pointers of the same tensors; making them; and taking down the layout of an optimizer.
#include <ATen/CPUGeneratorImpl.h>
#include <benchmark/benchmark.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks.h"
#include "guards/guard_set.h"
#include "live/objects.h"
#include "recorder/intercept/interceptor.h"
#include "recorder/recorder.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "replayer/runtime/backends.h"

namespace steptape::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kColdIterations = 200;

/// Linear layers of 4 inputs and outputs, two parameters each, with gradients and Adam state; the
/// step is the optimizer's.
class Guarded {
 public:
  explicit Guarded(std::int64_t parameters) {
    for (std::int64_t k = 0; k < parameters / 2; ++k) {
      model_->register_module("layer" + std::to_string(k), torch::nn::Linear(32, 32));
    }
    for (const at::Tensor& parameter : model_->parameters()) {
      parameter.mutable_grad() = at::ones_like(parameter);
    }
    optimizer_ = std::make_shared<torch::optim::Adam>(model_->parameters());
    optimizer_->step();
    objects_.track("model", model_);
    objects_.track("optimizer", std::shared_ptr<torch::optim::Optimizer>(optimizer_));
    recorder::Recorded recorded = recorder::record(
        [&] {
          optimizer_->step();
          return std::vector<at::Tensor>{};
        },
        {}, objects_, recorder::interceptor(Interception::kFakeKey));
    replayer::bind_optimizers(recorded.recording);
    recording_ = std::make_shared<trace::Recording>(std::move(recorded.recording));
    executor_ = replayer::make_executor(
        recording_, [](const std::string&) { return at::detail::getDefaultCPUGenerator(); });
    snapshot_ = objects_.snapshot();
  }

  std::unique_ptr<guards::GuardSet> guards() const {
    return std::make_unique<guards::GuardSet>(*recording_, executor_->bound(),
                                              executor_->written_buffers(), objects_, snapshot_,
                                              std::vector<guards::OutsideTensor>());
  }
  const live::Snapshot& snapshot() const { return snapshot_; }
  live::Snapshot take_snapshot() const { return objects_.snapshot(); }

 private:
  std::shared_ptr<torch::nn::Module> model_ = std::make_shared<torch::nn::Module>("Layers");
  std::shared_ptr<torch::optim::Adam> optimizer_;
  live::Objects objects_;
  std::shared_ptr<trace::Recording> recording_;
  std::unique_ptr<replayer::Executor> executor_;
  live::Snapshot snapshot_;
};

/// Drives everything else out of the processor's caches.
void evict() {
  static std::vector<char> memory(std::size_t{128} << 20);
  for (std::size_t at = 0; at < memory.size(); at += 64) ++memory[at];
  benchmark::ClobberMemory();
}

/// Times `run` by itself, with warm caches or with cold ones.
template <typename Run>
void time_run(benchmark::State& state, bool cold, Run&& run) {
  for (auto _ : state) {
    if (cold) evict();
    const auto start = Clock::now();
    benchmark::DoNotOptimize(run());
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
  }
}

void check_guards(benchmark::State& state) {
  const Guarded guarded(state.range(0));
  const auto guards = guarded.guards();
  const guards::Declared declared;
  guards::Entry entry;
  if (const Verdict verdict = guards->check({}, declared, entry); !verdict) {
    state.SkipWithError(verdict.text().c_str());
    return;
  }
  time_run(state, state.range(1) != 0,
           [&] { return static_cast<bool>(guards->check({}, declared, entry)); });
  state.counters["tensors"] = static_cast<double>(guarded.snapshot().tensors.size());
}

void compare_pointers(benchmark::State& state) {
  const Guarded guarded(state.range(0));
  struct Pointers {
    const c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    const void* data;
  };
  std::vector<Pointers> expected;
  for (const live::TensorAt& at : guarded.snapshot().tensors) {
    const c10::StorageImpl* storage = at.tensor.storage().unsafeGetStorageImpl();
    expected.push_back({at.tensor.unsafeGetTensorImpl(), storage, storage->data()});
  }
  time_run(state, state.range(1) != 0, [&] {
    bool is_same = true;
    for (const Pointers& pointers : expected) {
      const c10::StorageImpl* storage = pointers.tensor->unsafe_storage().unsafeGetStorageImpl();
      is_same &= storage == pointers.storage && storage->data() == pointers.data;
    }
    return is_same;
  });
  state.counters["tensors"] = static_cast<double>(expected.size());
}

void build_guards(benchmark::State& state) {
  const Guarded guarded(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(guarded.guards());
  state.counters["tensors"] = static_cast<double>(guarded.snapshot().tensors.size());
}

void record_layout(benchmark::State& state) {
  const Guarded guarded(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(guarded.take_snapshot());
}

}  // namespace

void register_guards() {
  const auto add = [](const char* name, auto run) {
    for (const std::int64_t parameters : {100, 1000}) {
      for (const std::int64_t cold : {0, 1}) {
        auto* benchmark = benchmark::RegisterBenchmark(name, run)
                              ->Unit(benchmark::kMicrosecond)
                              ->Args({parameters, cold})
                              ->ArgNames({"params", "cold"})
                              ->UseManualTime();
        // driving things out of the caches takes longer than what is timed
        if (cold != 0) benchmark->Iterations(kColdIterations);
      }
    }
  };
  add("BM_GuardCheck", check_guards);
  add("BM_PointerLoop", compare_pointers);
  const auto add_making = [](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, run)
        ->Unit(benchmark::kMicrosecond)
        ->Arg(100)
        ->Arg(1000)
        ->ArgName("params");
  };
  add_making("BM_GuardBuild", build_guards);
  add_making("BM_OptimizerLayout", record_layout);
}

}  // namespace steptape::bench
