#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <random>

#include "replayer/planner/passes/passes.h"
#include "tests/replayer/awkward.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

/// Whether runs of the plan leave the bits of `body` in results and inputs.
bool leaves_the_bits(replayer::Executor& executor, const StepBody& body,
                     const std::function<Tensors()>& inputs) {
  bool is_equal = true;
  for (int round = 0; round < 3; ++round) {
    const Tensors now = inputs();
    Tensors eager;
    for (const at::Tensor& input : now) eager.push_back(input.clone());
    const Tensors found = run(executor, now), expected = body(eager);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      is_equal = is_equal && same_bits(found[i], expected[i]);
    }
    for (std::size_t i = 0; i < now.size(); ++i) is_equal &= same_bits(now[i], eager[i]);
  }
  return is_equal;
}

/// The same of a new plan, with a kernel for `op`.
bool leaves_the_bits(const std::string& op, const StepBody& body,
                     const std::function<Tensors()>& inputs) {
  const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs())),
                                                     default_generator());
  for (const CountedReason& each : executor->stats().unprepared) {
    EXPECT_FALSE(each.reason.starts_with("aten::" + op)) << each.reason;
  }
  return leaves_the_bits(*executor, body, inputs);
}

TEST(ColumnSumTest, LeavesTheBitsOfTheOp) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 300; ++trial) {
    const int most = trial % 3 == 0 ? 600 : 70;
    const auto rows = static_cast<std::int64_t>(2 + random() % most);
    const auto columns = static_cast<std::int64_t>(2 + random() % (20000 / rows));
    const StepBody body = [&](const Tensors& x) -> Tensors {
      return {at::sum(x[0] * 1, {0}, trial % 2 == 0).clone()};
    };
    EXPECT_TRUE(leaves_the_bits("sum", body,
                                [&] {
                                  return Tensors{sometimes_awkward({rows, columns})};
                                }))
        << rows << "x" << columns;
  }
}

TEST(ColumnSumTest, ManyRowsAndManyDimensions) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{
           {600'000, 3}, {70'000, 1, 9}, {40, 50, 2, 7}, {1, 300, 5}, {17, 1, 64}}) {
    const StepBody body = [&](const Tensors& x) -> Tensors {
      return {at::sum(x[0] * 1, {1, 0}).clone()};
    };
    EXPECT_TRUE(leaves_the_bits("sum", body, [&] { return Tensors{at::randn(sizes)}; }))
        << ::testing::PrintToString(sizes);
  }
  at::set_num_threads(threads);
}

TEST(MaxPoolTest, LeavesTheBitsOfTheOp) {
  std::mt19937 random(7);
  const auto size = [&](int least, int most) {
    return static_cast<std::int64_t>(least + random() % (most - least + 1));
  };
  for (int trial = 0; trial < 200; ++trial) {
    const bool is_plain = trial % 2 == 0;  // as most networks have it
    const std::vector<std::int64_t> kernel = {is_plain ? 2 : size(1, 4), is_plain ? 2 : size(1, 4)};
    const std::vector<std::int64_t> stride = {size(1, 3), size(1, 3)};
    const std::vector<std::int64_t> padding = {size(0, kernel[0] / 2), size(0, kernel[1] / 2)};
    const std::vector<std::int64_t> dilation = {is_plain ? 1 : size(1, 2),
                                                is_plain ? 1 : size(1, 2)};
    const std::vector<std::int64_t> sizes = {size(1, 3), size(1, 3), size(8, 40), size(8, 40)};
    const bool rounds_up = trial % 3 == 0;
    const StepBody body = [&](const Tensors& x) -> Tensors {
      const auto [out, places] =
          at::max_pool2d_with_indices(x[0] * 1, kernel, stride, padding, dilation, rounds_up);
      return {out.clone(), places.clone()};
    };
    EXPECT_TRUE(
        leaves_the_bits("max_pool2d", body, [&] { return Tensors{sometimes_awkward(sizes)}; }))
        << "kernel " << ::testing::PrintToString(kernel) << " stride "
        << ::testing::PrintToString(stride) << " padding " << ::testing::PrintToString(padding)
        << " dilation " << ::testing::PrintToString(dilation) << " of "
        << ::testing::PrintToString(sizes);
  }
  const StepBody square = [](const Tensors& x) -> Tensors {
    return {std::get<0>(at::max_pool2d_with_indices(x[0] * 1, {3})).clone()};
  };
  const auto lowest = [] { return Tensors{at::full({3, 9, 9}, -INFINITY)}; };
  EXPECT_TRUE(leaves_the_bits("max_pool2d", square, lowest));
}

TEST(BatchNormTest, LeavesTheBitsOfTheOp) {
  std::mt19937 random(8);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(2 + random() % 9),
                                       static_cast<std::int64_t>(1 + random() % 37)};
    sizes.push_back(static_cast<std::int64_t>(2 + random() % 17));
    if (trial % 3 != 0) sizes.push_back(static_cast<std::int64_t>(1 + random() % 17));
    const bool has_weight = random() % 3 != 0, has_running = random() % 3 != 0;
    const StepBody body = [&](const Tensors& x) -> Tensors {
      const auto [out, mean, invstd] = at::native_batch_norm(
          x[0] * 1, has_weight ? x[1] : at::Tensor(), has_weight ? x[2] : at::Tensor(),
          has_running ? x[3] : at::Tensor(), has_running ? x[4] : at::Tensor(), true, 0.1,
          trial % 5 == 0 ? 0 : 1e-5);
      return {out.clone(), mean.clone(), invstd.clone()};
    };
    const auto inputs = [&] {
      const at::Tensor images = trial % 7 == 0 ? at::ones(sizes) : sometimes_awkward(sizes);
      return Tensors{images, at::randn({sizes[1]}), at::randn({sizes[1]}), at::randn({sizes[1]}),
                     at::rand({sizes[1]})};
    };
    EXPECT_TRUE(leaves_the_bits("native_batch_norm", body, inputs))
        << ::testing::PrintToString(sizes) << " trial " << trial;
  }
}

TEST(BatchNormTest, AnInputInNoMemoryFormatIsNotGivenToTheOutVariant) {
  const StepBody body = [](const Tensors& x) -> Tensors {
    const auto [out, mean, invstd] =
        at::native_batch_norm((x[0] * 1).transpose(1, 2), {}, {}, x[1], x[2], true, 0.1, 1e-5);
    return {out.clone(), mean.clone(), invstd.clone()};
  };
  const auto inputs = [] { return Tensors{at::randn({4, 6, 5}), at::randn({5}), at::rand({5})}; };
  const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs())),
                                                     default_generator());
  EXPECT_TRUE(leaves_the_bits(*executor, body, inputs));
}

}  // namespace
}  // namespace steptape::tests
