#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <bit>
#include <functional>
#include <limits>
#include <random>

#include "replayer/cpu/kernels/blas.h"
#include "replayer/cpu/kernels/elementwise.h"
#include "replayer/cpu/kernels/small_product.h"
#include "replayer/cpu/kernels/table.h"
#include "replayer/passes/passes.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

using replayer::PassOptions;
using Tensors = std::vector<at::Tensor>;

/// Every third element is one that arithmetic treats in its own way, each time at other places, so
/// that they meet each other.
at::Tensor awkward(at::IntArrayRef sizes) {
  using Limits = std::numeric_limits<float>;
  static const std::vector<float> kSpecial = {0.0F,
                                              -0.0F,
                                              Limits::quiet_NaN(),
                                              -Limits::quiet_NaN(),
                                              std::bit_cast<float>(0x7fc01234U),
                                              Limits::infinity(),
                                              -Limits::infinity(),
                                              Limits::denorm_min(),
                                              -1e-39F,
                                              Limits::max(),
                                              Limits::min()};
  static std::size_t calls = 0;
  at::Tensor tensor = at::randn(sizes);
  float* const elements = tensor.mutable_data_ptr<float>();
  std::size_t next = 7 * ++calls;
  for (std::int64_t i = 0; i < tensor.numel(); i += 3)
    elements[i] = kSpecial[next++ % kSpecial.size()];
  return tensor;
}

/// Of two NaNs that meet, the code of a sanitizer's build lets go on another than ATen's: there any
/// NaN is as good as another.
bool leaves_the_same(const at::Tensor& found, const at::Tensor& expected) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (found.is_floating_point() && found.scalar_type() == expected.scalar_type()) {
    return same_bits(found.isnan(), expected.isnan()) &&
           same_bits(found.nan_to_num(0.0), expected.nan_to_num(0.0));
  }
#endif
  return same_bits(found, expected);
}

/// How the tensors of an op lie.
struct Lie {
  std::string name;
  std::function<at::Tensor()> make;
};

std::vector<Lie> lies() {
  return {
      {"one", [] { return awkward({1}); }},
      {"scalar", [] { return awkward({1}).squeeze(0); }},
      {"none",
       [] {
         return at::empty({0, 4});
       }},
      {"short", [] { return awkward({7}); }},
      {"tail",
       [] {
         return awkward({3, 37});
       }},
      {"long",
       [] {
         return awkward({5, 1000});
       }},
      {"transposed",
       [] {
         return awkward({33, 9}).t();
       }},
      {"strided",
       [] {
         return awkward({20, 18}).slice(1, 0, 18, 2);
       }},
      {"shifted", [] { return awkward({131}).slice(0, 1); }},
      {"channels_last",
       [] {
         return awkward({2, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast);
       }},
      {"half",
       [] {
         return at::randn({3, 37}).to(at::kBFloat16);
       }},
      {"half_scalar", [] { return at::randn({3}).to(at::kBFloat16)[0]; }},
      {"double",
       [] {
         return awkward({3, 37}).to(at::kDouble);
       }},
  };
}

/// One op over tensors that lie alike; what is in place is done to a clone that lies so too.
struct Case {
  std::string name;
  std::size_t operands;
  std::function<at::Tensor(const Tensors&)> op;
};

at::Tensor in_place(const at::Tensor& x, const std::function<void(at::Tensor&)>& write) {
  at::Tensor y = x * 1;  // lies as x does where nothing is between its elements
  write(y);
  return y;
}

std::vector<Case> cases() {
  return {
      {"add", 2, [](const Tensors& x) { return x[0] + x[1]; }},
      {"add_alpha", 2, [](const Tensors& x) { return at::add(x[0], x[1], 0.3); }},
      {"add_scalar", 1, [](const Tensors& x) { return x[0] + 0.1; }},
      {"add_scalar_alpha", 1, [](const Tensors& x) { return at::add(x[0], 0.1, 3); }},
      {"add_", 2,
       [](const Tensors& x) { return in_place(x[0], [&](at::Tensor& y) { y.add_(x[1], -0.7); }); }},
      {"add_scalar_", 1,
       [](const Tensors& x) { return in_place(x[0], [](at::Tensor& y) { y.add_(1e-8); }); }},
      {"sub", 2, [](const Tensors& x) { return x[0] - x[1]; }},
      {"rsub", 1, [](const Tensors& x) { return 1 - x[0]; }},
      {"sub_alpha", 2, [](const Tensors& x) { return at::sub(x[0], x[1], 0.3); }},
      {"sub_", 2,
       [](const Tensors& x) { return in_place(x[0], [&](at::Tensor& y) { y.sub_(x[1]); }); }},
      {"sub_scalar_", 1,
       [](const Tensors& x) { return in_place(x[0], [](at::Tensor& y) { y.sub_(0.1); }); }},
      {"cat", 2,
       [](const Tensors& x) {
         return x[0].dim() > 0 ? at::cat({x[0], x[1], x[0]}, -1) : x[0] + 0;
       }},
      {"cat_first", 2,
       [](const Tensors& x) {
         return x[0].dim() > 0 ? at::cat({x[0], x[1]}, 0) : x[0] + 0;
       }},
      {"stack", 2,
       [](const Tensors& x) {
         return at::stack({x[0], x[1]}, 0);
       }},
      {"stack_last", 2,
       [](const Tensors& x) {
         return at::stack({x[0], x[1]}, -1);
       }},
      {"clone", 1, [](const Tensors& x) { return x[0].clone(at::MemoryFormat::Contiguous); }},
      {"clone_transposed", 1,
       [](const Tensors& x) {
         return x[0].dim() > 1 ? x[0].transpose(0, 1).contiguous() : x[0] + 0;
       }},
      {"clone_expanded", 1,
       [](const Tensors& x) {
         std::vector<std::int64_t> sizes(static_cast<std::size_t>(x[0].dim()) + 1, -1);
         sizes[0] = 3;
         return x[0].unsqueeze(0).expand(sizes).clone(at::MemoryFormat::Contiguous);
       }},
      {"select_backward", 1,
       [](const Tensors& x) {
         return x[0].dim() > 1 && x[0].size(0) > 1
                    ? at::select_backward(x[0].select(0, 0), x[0].sizes(), 0, 1)
                    : x[0] + 0;
       }},
      {"slice_backward", 1,
       [](const Tensors& x) {
         return x[0].dim() > 1 && x[0].size(0) > 2
                    ? at::slice_backward(x[0].slice(0, 1, 3), x[0].sizes(), 0, 1, 3, 1)
                    : x[0] + 0;
       }},
      {"mul", 2, [](const Tensors& x) { return x[0] * x[1]; }},
      {"square", 1, [](const Tensors& x) { return x[0] * x[0]; }},
      {"mul_scalar", 1, [](const Tensors& x) { return x[0] * 0.9; }},
      {"mul_", 2,
       [](const Tensors& x) { return in_place(x[0], [&](at::Tensor& y) { y.mul_(x[1]); }); }},
      {"mul_scalar_", 1,
       [](const Tensors& x) { return in_place(x[0], [](at::Tensor& y) { y.mul_(0.999); }); }},
      {"mul_itself_", 1,
       [](const Tensors& x) { return in_place(x[0], [](at::Tensor& y) { y.mul_(y); }); }},
      {"mul_by_one_element", 2,
       [](const Tensors& x) { return x[0] * (x[1].numel() > 0 ? x[1].flatten()[0] : x[1].sum()); }},
      {"numbers_that_are_nan", 2,
       [](const Tensors& x) {
         const at::Tensor nan = x[1].flatten().sum() * std::bit_cast<float>(0xffc04321U);
         at::Tensor y = (x[0] * 1).mul_(nan).add_(x[0]);
         y.add_(nan).sub_(nan).div_(nan);
         return at::cat({y.flatten(), (x[0] + nan).flatten(), (x[0] * 1 / nan).flatten()});
       }},
      {"div", 2, [](const Tensors& x) { return x[0] / x[1]; }},
      {"div_scalar", 1, [](const Tensors& x) { return x[0] / 3.1; }},
      {"div_scalar_", 1,
       [](const Tensors& x) { return in_place(x[0], [](at::Tensor& y) { y.div_(1.7); }); }},
      {"addcmul", 3, [](const Tensors& x) { return at::addcmul(x[0], x[1], x[2], 0.1); }},
      {"addcmul_", 2,
       [](const Tensors& x) {
         return in_place(x[0], [&](at::Tensor& y) { y.addcmul_(x[1], x[1], 0.001); });
       }},
      {"addcdiv", 3, [](const Tensors& x) { return at::addcdiv(x[0], x[1], x[2], -0.01); }},
      {"addcdiv_", 3,
       [](const Tensors& x) {
         return in_place(x[0], [&](at::Tensor& y) { y.addcdiv_(x[1], x[2], -0.01); });
       }},
      {"lerp", 2, [](const Tensors& x) { return at::lerp(x[0], x[1], 0.1); }},
      {"lerp_far", 2, [](const Tensors& x) { return at::lerp(x[0], x[1], 0.9); }},
      {"lerp_", 2,
       [](const Tensors& x) {
         return in_place(x[0], [&](at::Tensor& y) { y.lerp_(x[1], 0.25); });
       }},
      {"maximum", 2, [](const Tensors& x) { return at::maximum(x[0], x[1]); }},
      {"minimum", 2, [](const Tensors& x) { return at::minimum(x[0], x[1]); }},
      {"clamp_min", 1, [](const Tensors& x) { return at::clamp_min(x[0], 0.5); }},
      {"pow", 1, [](const Tensors& x) { return at::pow(x[0], 3); }},
      {"pow_half", 1, [](const Tensors& x) { return at::pow(x[0], 0.5); }},
      {"neg", 1, [](const Tensors& x) { return -x[0]; }},
      {"reciprocal", 1, [](const Tensors& x) { return at::reciprocal(x[0]); }},
      {"sqrt", 1, [](const Tensors& x) { return at::sqrt(x[0]); }},
      {"rsqrt", 1, [](const Tensors& x) { return at::rsqrt(x[0]); }},
      {"exp", 1, [](const Tensors& x) { return at::exp(x[0]); }},
      {"log", 1, [](const Tensors& x) { return at::log(x[0]); }},
      {"sin", 1, [](const Tensors& x) { return at::sin(x[0]); }},
      {"cos", 1, [](const Tensors& x) { return at::cos(x[0]); }},
      {"erf", 1, [](const Tensors& x) { return at::erf(x[0]); }},
      {"sigmoid", 1, [](const Tensors& x) { return at::sigmoid(x[0]); }},
      {"tanh", 1, [](const Tensors& x) { return at::tanh(x[0]); }},
      {"relu_", 1,
       [](const Tensors& x) { return in_place(x[0], [](at::Tensor& y) { y.relu_(); }); }},
      {"threshold_backward", 2,
       [](const Tensors& x) { return at::threshold_backward(x[0], x[1], 0); }},
      {"sigmoid_backward", 2, [](const Tensors& x) { return at::sigmoid_backward(x[0], x[1]); }},
      {"tanh_backward", 2, [](const Tensors& x) { return at::tanh_backward(x[0], x[1]); }},
      {"gelu", 1, [](const Tensors& x) { return at::gelu(x[0]); }},
      {"gelu_tanh", 1, [](const Tensors& x) { return at::gelu(x[0], "tanh"); }},
      {"gelu_backward", 2, [](const Tensors& x) { return at::gelu_backward(x[0], x[1]); }},
      {"silu", 1, [](const Tensors& x) { return at::silu(x[0]); }},
      {"silu_backward", 2, [](const Tensors& x) { return at::silu_backward(x[0], x[1]); }},
      {"elu", 1, [](const Tensors& x) { return at::elu(x[0]); }},
      {"leaky_relu", 1, [](const Tensors& x) { return at::leaky_relu(x[0], 0.01); }},
      {"softplus", 1, [](const Tensors& x) { return at::softplus(x[0]); }},
      {"gt", 2, [](const Tensors& x) { return x[0] > x[1]; }},
      {"le_scalar", 1, [](const Tensors& x) { return x[0] <= 0; }},
      {"ne", 2, [](const Tensors& x) { return x[0] != x[1]; }},
      {"sum", 1, [](const Tensors& x) { return x[0].dim() > 0 ? at::sum(x[0], {0}) : x[0] + 0; }},
      {"sum_last", 1,
       [](const Tensors& x) { return x[0].dim() > 0 ? at::sum(x[0], {-1}, true) : x[0] + 0; }},
      {"mean", 1, [](const Tensors& x) { return x[0].dim() > 0 ? at::mean(x[0], {0}) : x[0] + 0; }},
      {"softmax", 1,
       [](const Tensors& x) { return x[0].dim() > 0 ? at::softmax(x[0], -1) : x[0] + 0; }},
      {"log_softmax", 1,
       [](const Tensors& x) { return x[0].dim() > 0 ? at::log_softmax(x[0], 0) : x[0] + 0; }},
      {"copy_", 2,
       [](const Tensors& x) { return in_place(x[0], [&](at::Tensor& y) { y.copy_(x[1]); }); }},
      {"foreach_adam", 3,
       [](const Tensors& x) {
         Tensors m = {x[0] * 1, x[1] * 1}, g = {x[2] * 1, x[0] * 1};
         at::_foreach_mul_(m, 0.9);
         at::_foreach_add_(m, g, 0.1);
         at::_foreach_addcmul_(m, g, g, 0.001);
         at::_foreach_div_(m, std::vector<at::Scalar>{0.5, 1.5});
         at::_foreach_lerp_(m, g, 0.1);
         at::_foreach_addcdiv_(m, g, g, -0.01);
         return at::cat({m[0].flatten(), m[1].flatten()});
       }},
  };
}

/// A result that the user gets is made by the op itself: kernels write to what lies between.
StepBody body_of(const Case& each) {
  return [op = each.op](const Tensors& x) -> Tensors { return {op(x).clone()}; };
}

bool is_prepared(const replayer::cpu::Executor& executor) { return executor.stats().prepared > 0; }

class KernelTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(KernelTest, LeavesTheBitsOfTheOp) {
  const Case each = cases()[GetParam()];
  bool was_prepared = false;
  for (const Lie& lie : lies()) {
    Tensors inputs;
    for (std::size_t i = 0; i < each.operands; ++i) inputs.push_back(lie.make());
    const StepBody body = body_of(each);
    const auto recording = recorded(body, inputs);
    replayer::cpu::Executor executor(replayer::plan(recording, {}), default_generator());
    was_prepared |= is_prepared(executor);
    for (int round = 0; round < 3; ++round) {
      // in other memory each time, which lies in the same way
      Tensors now;
      for (const at::Tensor& input : inputs) {
        now.push_back(lie.make());
        if (round != 1) now.back().copy_(round == 0 ? input : at::randn(input.sizes()));
      }
      EXPECT_TRUE(leaves_the_same(run(executor, now)[0], body(now)[0]))
          << lie.name << " round " << round;
    }
  }
  EXPECT_TRUE(was_prepared) << "no kernel took any of them";
}

INSTANTIATE_TEST_SUITE_P(Ops, KernelTest, ::testing::Range<std::size_t>(0, cases().size()),
                         [](const auto& info) { return cases()[info.param].name; });

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
    replayer::cpu::Executor executor(replayer::plan(recorded(body, inputs), {}),
                                     default_generator());
    prepared += executor.stats().prepared;
    for (const at::Tensor& other : {inputs[0], at::randn({m, k}) * 1e-22}) {
      Tensors now = inputs;
      now[0] = inputs[0].clone(at::MemoryFormat::Preserve);
      if (!now[0].strides().equals(inputs[0].strides())) now[0] = inputs[0];
      now[0].copy_(other);
      ASSERT_TRUE(same_bits(run(executor, now)[0], body(now)[0]))
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
  EXPECT_FALSE(make(300, 16, 300));
}

/// Whether a plan of `body` leaves its bits, with a kernel for `op`.
bool leaves_the_bits(const std::string& op, const StepBody& body,
                     const std::function<Tensors()>& inputs) {
  const auto recording = recorded(body, inputs());
  replayer::cpu::Executor executor(replayer::plan(recording, {}), default_generator());
  for (const CountedReason& each : executor.stats().unprepared) {
    EXPECT_FALSE(each.reason.starts_with("aten::" + op)) << each.reason;
  }
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

/// Half of them by `awkward`.
at::Tensor sometimes_awkward(at::IntArrayRef sizes) {
  static std::size_t calls = 0;
  return ++calls % 2 == 0 ? awkward(sizes) : at::randn(sizes);
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
  replayer::cpu::Executor executor(replayer::plan(recorded(body, inputs()), {}),
                                   default_generator());
  for (int round = 0; round < 3; ++round) {
    const Tensors now = inputs();
    Tensors eager;
    for (const at::Tensor& input : now) eager.push_back(input.clone());
    const Tensors found = run(executor, now), expected = body(eager);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
      EXPECT_TRUE(same_bits(now[i], eager[i])) << i;
    }
  }
}

TEST(ProductKernelTest, LessPrecisionIsLeftToATen) {
  const StepBody body = [](const Tensors& x) -> Tensors { return {at::mm(x[0], x[1]).clone()}; };
  const Tensors inputs = {at::randn({160, 512}), at::randn({512, 64})};
  at::globalContext().setFloat32MatmulPrecision("medium");
  replayer::cpu::Executor executor(replayer::plan(recorded(body, inputs), {}), default_generator());
  EXPECT_TRUE(same_bits(run(executor, inputs)[0], body(inputs)[0]));
  at::globalContext().setFloat32MatmulPrecision("highest");
}

TEST(ElementNumberTest, WhatFloat32CannotHoldIsNotFit) {
  const auto fit = [](double number) {
    const c10::IValue value(number);
    return replayer::cpu::ElementNumber(value, -1).is_fit();
  };
  EXPECT_TRUE(fit(1e38));
  EXPECT_TRUE(fit(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(fit(1e39));
  EXPECT_FALSE(fit(-1e300));
  EXPECT_FALSE(fit(std::numeric_limits<double>::quiet_NaN()));
}

/// A program of element-wise ops, in place and not, over tensors of a few shapes.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed) : random_(seed) {
    for (int i = 0; i < 24; ++i) {
      lines_.push_back({draw() % 12, draw(), draw(), draw()});
    }
  }

  Tensors operator()(const Tensors& inputs) const {
    Tensors pool;
    for (const at::Tensor& input : inputs) pool.push_back(input);
    for (const Line& line : lines_) run(line, pool);
    Tensors results;
    for (const at::Tensor& tensor : pool) results.push_back(tensor.clone());
    return results;
  }

 private:
  struct Line {
    std::uint32_t kind, a, b, c;
  };

  std::uint32_t draw() { return static_cast<std::uint32_t>(random_()); }

  static void run(const Line& line, Tensors& pool) {
    at::Tensor& a = pool[line.a % pool.size()];
    const auto like = [&](std::uint32_t choice) {
      for (std::size_t i = 0; i < pool.size(); ++i) {
        const at::Tensor& found = pool[(choice + i) % pool.size()];
        if (found.sizes() == a.sizes()) return found;
      }
      return a;
    };
    const at::Tensor b = like(line.b), c = like(line.c);
    switch (line.kind) {
      case 0:
        pool.push_back(a + b);
        break;
      case 1:
        pool.push_back(a * 0.3);
        break;
      case 2:
        pool.push_back(at::sqrt(b));
        break;
      case 3:
        a.mul_(0.9);
        break;
      case 4:
        a.add_(b, 0.1);
        break;
      case 5:
        a.addcmul_(b, c, 0.01);
        break;
      case 6:
        a.addcdiv_(b, c, -0.5);
        break;
      case 7:
        a.copy_(b);
        break;
      case 8:
        a.view({-1}).slice(0, 0, a.numel() / 2).mul_(1.5);
        break;
      case 9:
        pool.push_back(a.view({-1}).slice(0, 1).add(1).sum() * b);
        break;
      case 10: {
        at::Tensor x = a, y = b;
        if (x.data_ptr() == y.data_ptr()) break;
        at::_foreach_mul_({x, y}, 1.01);
        break;
      }
      default:
        a.lerp_(b, 0.2);
    }
  }

  std::mt19937 random_;
  std::vector<Line> lines_;
};

TEST(NoKernelTest, ATensorThatStandsForAnotherIsLeftToTheDispatcher) {
  const StepBody body = [](const Tensors& x) -> Tensors {
    return {(at::_neg_view(x[0] * 2) * x[0]).clone()};
  };
  const Tensors inputs = {awkward({3, 37})};
  for (const bool kernels : {false, true}) {
    replayer::cpu::Executor executor(replayer::plan(recorded(body, inputs), {.kernels = kernels}),
                                     default_generator());
    EXPECT_TRUE(same_bits(run(executor, inputs)[0], body(inputs)[0])) << "kernels " << kernels;
  }
}

TEST(ChainTest, RandomProgramsLeaveTheEagerBits) {
  std::size_t chained = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const RandomProgram program(seed);
    const auto inputs = [] {
      return Tensors{at::randn({40, 60}), at::randn({40, 60}), at::randn({17}),
                     at::randn({40, 60}), at::randn({17}),     at::randn({3, 5})};
    };
    const StepBody body = [&](const Tensors& x) { return program(x); };
    const auto recording = recorded(body, inputs());
    for (const bool kernels : {true, false}) {
      for (const bool chains : {true, false}) {
        if (chains && !kernels) continue;
        replayer::cpu::Executor executor(
            replayer::plan(recording, {.kernels = kernels, .chains = chains}), default_generator());
        for (int round = 0; round < 2; ++round) {
          at::manual_seed(seed + static_cast<std::uint64_t>(round));
          const Tensors planned = inputs();
          Tensors eager;
          for (const at::Tensor& input : planned) eager.push_back(input.clone());
          const Tensors found = run(executor, planned);
          const Tensors expected = body(eager);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_TRUE(same_bits(found[i], expected[i]))
                << "seed " << seed << " result " << i << " kernels " << kernels << " chains "
                << chains;
          }
          for (std::size_t i = 0; i < eager.size(); ++i) {
            ASSERT_TRUE(same_bits(planned[i], eager[i])) << "seed " << seed << " input " << i;
          }
        }
        if (chains) chained += executor.stats().calls - executor.stats().stages;
      }
    }
  }
  EXPECT_GT(chained, 500u);
}

}  // namespace
}  // namespace steptape::tests
