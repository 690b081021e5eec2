#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <random>

#include "replayer/planner/passes/passes.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/cpu/kernels/products/small_product.h"
#include "tests/replayer/awkward.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

/// Matrices as they lie in training: plain, transposed, parts of others, of one row or column.
TEST(ProductKernelTest, LeavesTheBitsOfTheOp) {
  std::mt19937 random(5);
  const auto size = [&](int most) { return static_cast<std::int64_t>(1 + random() % most); };
  // products of the third are denormals, of the fourth zeros of both signs
  const auto numbers = [&](at::IntArrayRef sizes) {
    const auto kind = random() % 8;
    if (kind == 0) return awkward(sizes);
    return at::randn(sizes) * (kind == 1 ? 1e-20 : kind == 2 ? 1e-24 : 1.0);
  };
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    switch (random() % 4) {
      case 0:
        return numbers({columns, rows}).t();
      case 1:
        return numbers({rows, columns + 3}).slice(1, 0, columns);
      default:
        return numbers({rows, columns});
    }
  };
  std::uint64_t prepared = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const int most = trial % 4 == 0 ? 200 : trial % 4 == 1 ? 70 : 20;
    const std::int64_t m = size(most), n = size(most), k = size(most);
    const Tensors inputs = {matrix(m, k), matrix(k, n), numbers({n})};
    const bool has_bias = trial % 2 == 0;
    const StepBody body = [&](const Tensors& x) -> Tensors {
      return {(has_bias ? at::addmm(x[2], x[0], x[1]) : at::mm(x[0], x[1])).clone()};
    };
    const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                                       default_generator());
    prepared += executor->stats().prepared;
    for (const at::Tensor& other : {inputs[0], at::randn({m, k}) * 1e-22}) {
      Tensors now = inputs;
      now[0] = inputs[0].clone(at::MemoryFormat::Preserve);
      if (!now[0].strides().equals(inputs[0].strides())) now[0] = inputs[0];
      now[0].copy_(other);
      ASSERT_TRUE(same_bits(run(*executor, now)[0], body(now)[0]))
          << m << "x" << k << " by " << k << "x" << n << ", bias " << has_bias;
    }
  }
  EXPECT_GT(prepared, replayer::cpu::blas().sgemm != nullptr ? 580u : 0u);
}

TEST(SmallProductTest, MultipliesWhatNetworksMultiplyHere) {
  if (replayer::cpu::blas().sgemm == nullptr) GTEST_SKIP() << "no BLAS to hold it against";
  // forward, gradient of the input, gradient of the weight
  const at::Tensor x = at::randn({32, 16}), weight = at::randn({16, 16}), bias = at::randn({16});
  const std::vector<replayer::cpu::MatrixProduct> products = {
      {x, weight.t(), bias, at::empty({32, 16})},
      {x, weight, {}, at::empty({32, 16})},
      {x.t(), x, {}, at::empty({16, 16})}};
  for (const replayer::cpu::MatrixProduct& product : products) {
    auto small = replayer::cpu::SmallProduct::make(product, {0, 0, 0, 0});
    if (!small) continue;  // BLAS adds in another order here, or is as fast
    EXPECT_TRUE(small->run());
    const at::Tensor expected = product.bias.defined()
                                    ? at::addmm(product.bias, product.a, product.b)
                                    : at::mm(product.a, product.b);
    EXPECT_TRUE(same_bits(product.result, expected));
  }
  auto small = replayer::cpu::SmallProduct::make(products[1], {0, 0, 0, 0});
  if (!small) GTEST_SKIP() << "BLAS adds in another order here, or is as fast";
  products[1].a[3][4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(small->run()) << "which NaN it is, only BLAS can tell";
}

TEST(SmallProductTest, LeavesDeepAndLargeOnesToBlas) {
  const auto make = [](std::int64_t m, std::int64_t k, std::int64_t n) {
    return replayer::cpu::SmallProduct::make(
        {at::randn({m, k}), at::randn({k, n}), {}, at::empty({m, n})}, {0, 0, 0, 0});
  };
  EXPECT_FALSE(make(4, 257, 4));
  EXPECT_FALSE(make(600, 16, 600));
}

TEST(SmallProductTest, ReadsAFactorThatAnotherPacked) {
  if (replayer::cpu::blas().sgemm == nullptr) GTEST_SKIP() << "no BLAS to hold it against";
  const at::Tensor weight = at::randn({192, 64});
  const auto make = [&](const at::Tensor& x, const at::Tensor& factor) {
    return replayer::cpu::SmallProduct::make({x, factor, {}, at::empty({8, 192})}, {0, 0, 0, 0});
  };
  const at::Tensor x = at::randn({8, 64}), y = at::randn({8, 64});
  auto first = make(x, weight.t()), second = make(y, weight.t());
  auto other = make(y, at::randn({192, 64}).t());
  if (!first) GTEST_SKIP() << "BLAS adds in another order here, or is as fast";
  EXPECT_TRUE(second->packs());
  EXPECT_TRUE(second->can_share_with(*first));
  EXPECT_FALSE(other->can_share_with(*first));
  second->share_with(*first);
  EXPECT_FALSE(second->packs());
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(first->run());
    EXPECT_TRUE(second->run());
    EXPECT_TRUE(same_bits(first->result(), at::mm(x, weight.t())));
    EXPECT_TRUE(same_bits(second->result(), at::mm(y, weight.t())));
    weight.add_(1);
    y.fill_(0.25);
  }
}

/// A cell's weights, read by each step of a sequence and written in the middle of it.
TEST(PackedFactorTest, IsPackedAnewInEachRunAndBehindAWrite) {
  const StepBody body = [](const Tensors& x) -> Tensors {
    at::Tensor weight = x[0].clone(), state = x[1];
    const at::Tensor part = weight.slice(0, 0, 64);
    at::Tensor sum = at::zeros({8, 192});
    for (int time = 0; time < 12; ++time) {
      const at::Tensor gates = at::addmm(x[2], state, weight.t());
      sum = sum + gates;
      state = at::mm(gates.slice(1, 0, 64), part.t()) * 0.125;
      if (time == 5) weight.mul_(0.5);
      if (time == 8) part.add_(0.25);
    }
    return {sum.clone(), state.clone()};
  };
  const Tensors inputs = {at::randn({192, 64}), at::randn({8, 64}), at::randn({192})};
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                                       default_generator());
    for (int round = 0; round < 6; ++round) {
      Tensors now = {at::randn({192, 64}), at::randn({8, 64}), at::randn({192})};
      if (round == 3) now[0][5][7] = std::numeric_limits<float>::quiet_NaN();
      const Tensors expected = body(now);
      const Tensors got = run(*executor, now);
      ASSERT_TRUE(same_bits(got[0], expected[0])) << threads << " threads, round " << round;
      ASSERT_TRUE(same_bits(got[1], expected[1])) << threads << " threads, round " << round;
    }
  }
  at::set_num_threads(1);
}

TEST(ProductKernelTest, AResultThatTheProgramGaveIsLeftToTheDispatcher) {
  const StepBody body = [](const Tensors& x) -> Tensors {
    at::Tensor product = at::zeros({8, 6}), sum = at::zeros({8, 6});
    at::mm_out(product, x[0], x[1]);
    at::addmm_out(sum, product, x[0], x[1]);
    return {product.clone(), sum.clone()};
  };
  const Tensors inputs = {at::randn({8, 4}), at::randn({4, 6})};
  const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                                     default_generator());
  const Tensors expected = body(inputs), got = run(*executor, inputs);
  EXPECT_TRUE(same_bits(got[0], expected[0]));
  EXPECT_TRUE(same_bits(got[1], expected[1]));
}

TEST(ProductKernelTest, LessPrecisionIsLeftToATen) {
  const StepBody body = [](const Tensors& x) -> Tensors { return {at::mm(x[0], x[1]).clone()}; };
  const Tensors inputs = {at::randn({160, 512}), at::randn({512, 64})};
  at::globalContext().setFloat32MatmulPrecision("medium");
  const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                                     default_generator());
  EXPECT_TRUE(same_bits(run(*executor, inputs)[0], body(inputs)[0]));
  at::globalContext().setFloat32MatmulPrecision("highest");
}

}  // namespace
}  // namespace steptape::tests
