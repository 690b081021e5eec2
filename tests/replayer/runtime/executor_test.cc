#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "replayer/planner/passes/passes.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

std::unique_ptr<replayer::Executor> executor_of(const StepBody& body,
                                                const std::vector<at::Tensor>& inputs) {
  return replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                      default_generator());
}

TEST(ExecutorTest, EachRunsResultsAreTheCallersAlone) {
  auto executor = executor_of(
      [](const auto& x) -> std::vector<at::Tensor> { return {x[0].mm(x[0])}; }, {at::rand({8, 8})});
  const at::Tensor first = run(*executor, {at::rand({8, 8})})[0];
  const at::Tensor copy = first.clone();
  const at::Tensor second = run(*executor, {at::rand({8, 8})})[0];
  EXPECT_TRUE(same_bits(first, copy));
  EXPECT_EQ(first.use_count(), 1);
  EXPECT_EQ(first.storage().use_count(), 1);
  EXPECT_NE(first.data_ptr(), second.data_ptr());
}

/// Runs a step whose result is made anew and lets `keep` have it; whether the run after it is
/// given the same memory, and what the first left in it.
struct Rerun {
  bool is_same_memory = false;
  std::size_t bytes = 0;  ///< of the memory that the second run is given
  at::Tensor kept;        ///< what `keep` kept of the first run
  at::Tensor expected;
};
Rerun rerun(const std::function<at::Tensor(at::Tensor)>& keep) {
  auto executor = executor_of(
      [](const auto& x) -> std::vector<at::Tensor> { return {x[0].mm(x[0])}; }, {at::rand({8, 8})});
  at::Tensor first = run(*executor, {at::rand({8, 8})})[0];
  const void* const address = first.data_ptr();
  Rerun done;
  done.expected = first.clone();
  done.kept = keep(std::move(first));
  const at::Tensor second = run(*executor, {at::rand({8, 8})})[0];
  done.is_same_memory = second.const_data_ptr() == address;
  done.bytes = second.storage().nbytes();
  return done;
}

TEST(ExecutorTest, MemoryOfAResultThatNobodyKeptIsTakenAgain) {
  EXPECT_TRUE(rerun([](const at::Tensor&) { return at::Tensor(); }).is_same_memory);
}

TEST(ExecutorTest, MemoryOfAResultThatSomebodyKeptIsNot) {
  const Rerun view = rerun([](const at::Tensor& first) { return first.view({-1}); });
  EXPECT_FALSE(view.is_same_memory);
  EXPECT_TRUE(same_bits(view.kept, view.expected.view({-1})));
  const Rerun lazy = rerun([](const at::Tensor& first) { return at::_lazy_clone(first); });
  EXPECT_TRUE(same_bits(lazy.kept, lazy.expected));
  const Rerun grown = rerun([](at::Tensor first) {
    first.resize_({64, 64});
    return at::Tensor();
  });
  EXPECT_EQ(grown.bytes, 8U * 8U * sizeof(float));
}

TEST(ExecutorTest, AThrowPutsBackWhatWasWrittenAndTheGenerator) {
  const StepBody body = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    x[0].add_(at::rand({4, 4}));
    return {x[0].index_select(0, x[1])};
  };
  auto executor = executor_of(body, {at::zeros({4, 4}), at::zeros({2}, at::kLong)});
  const at::Tensor target = at::ones({4, 4});
  at::manual_seed(4);
  EXPECT_ANY_THROW(run(*executor, {target, at::full({2}, 9, at::kLong)}));
  EXPECT_TRUE(same_bits(target, at::ones({4, 4})));
  const at::Tensor random = at::rand({3});
  at::manual_seed(4);
  EXPECT_TRUE(same_bits(random, at::rand({3})));
  EXPECT_NO_THROW(run(*executor, {target, at::zeros({2}, at::kLong)}));
  EXPECT_FALSE(same_bits(target, at::ones({4, 4})));
}

TEST(ExecutorTest, AConstantThatThePlanWritesIsFilledAnew) {
  // from_blob is not seen: the storage arrives filled by the host, as a Python number does
  const StepBody body = [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
    at::Tensor counter = at::scalar_tensor(0).clone();
    counter.add_(1);
    return {x[0] + counter};
  };
  auto executor = executor_of(body, {at::zeros({2})});
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(run(*executor, {at::zeros({2})})[0], at::ones({2})));
}

TEST(ExecutorTest, AnIntermediateIsFreedAfterItsLastUse) {
  auto executor =
      executor_of([](const auto& x) -> std::vector<at::Tensor> { return {at::relu(x[0]).sum()}; },
                  {at::rand({64, 64})});
  const at::Tensor result = run(*executor, {at::rand({64, 64})})[0];
  EXPECT_EQ(result.storage().nbytes(), sizeof(float));
}

TEST(ExecutorTest, CountsItsCalls) {
  auto executor = executor_of(
      [](const auto& x) -> std::vector<at::Tensor> { return {x[0].t().mm(x[0]).view({-1}).sum()}; },
      {at::rand({6, 8})});
  const PlanStats stats = executor->stats();
  EXPECT_EQ(stats.calls, 2U);
  EXPECT_EQ(stats.adopted, 1U);
  EXPECT_GE(stats.ops, 4U);
  EXPECT_EQ(stats.arena_bytes, 8U * 8U * sizeof(float));
}

}  // namespace
}  // namespace steptape::tests
