#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <gmock/gmock.h>

#include <bit>
#include <functional>
#include <limits>
#include <random>

#include "replayer/planner/passes/passes.h"
#include "replayer/runtime/cpu/kernels/elementwise.h"
#include "replayer/runtime/cpu/kernels/table.h"
#include "tests/replayer/awkward.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

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
      {"mul_out", 1,
       [](const Tensors& x) {
         return in_place(x[0], [&](at::Tensor& y) {
           at::mul_out(y, x[0], at::native::wrapped_scalar_tensor(0.5));
         });
       }},
      {"mul_out_of_a_part", 1,
       [](const Tensors& x) {
         const at::Tensor memory = at::zeros({x[0].numel() + 5}, x[0].options());
         at::Tensor y = memory.slice(0, 3, 3 + x[0].numel()).view(x[0].sizes());
         at::mul_out(y, x[0], at::native::wrapped_scalar_tensor(0.5));
         return memory;
       }},
      {"sub_out_of_itself", 2,
       [](const Tensors& x) {
         return in_place(x[0], [&](at::Tensor& y) { at::sub_out(y, x[1], y, 0.3); });
       }},
      {"add_out_of_doubles", 2,
       [](const Tensors& x) {
         at::Tensor y = at::zeros_like(x[0], x[0].dim() > 1 ? at::kDouble : x[0].scalar_type());
         return at::add_out(y, x[0], x[1]);
       }},
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
      {"lerp_half", 2, [](const Tensors& x) { return at::lerp(x[0], x[1], 0.5); }},
      {"lerp_back", 2, [](const Tensors& x) { return at::lerp(x[0], x[1], -1.7); }},
      {"lerp_beyond", 2, [](const Tensors& x) { return at::lerp(x[0], x[1], 1e20); }},
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
      {"sqrt_beside_zeros", 1, [](const Tensors& x) { return at::sqrt(x[0].clamp_min(0)); }},
      {"sqrt_", 1,
       [](const Tensors& x) {
         return in_place(x[0].clamp_min(0), [](at::Tensor& y) { y.sqrt_(); });
       }},
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
      {"foreach_steps", 1,
       [](const Tensors& x) {
         Tensors all = {x[0] * 1, x[0] * 2}, counts = {at::sum(x[0]), at::sum(x[0]) * 2};
         const at::Tensor one = at::scalar_tensor(1.1) * 1;
         at::_foreach_add_(all, one);
         at::_foreach_add_(counts, one, 0.7);
         return at::cat({all[0].flatten(), all[1].flatten(), at::stack(counts)});
       }},
  };
}

/// A result that the user gets is made by the op itself: kernels write to what lies between.
StepBody body_of(const Case& each) {
  return [op = each.op](const Tensors& x) -> Tensors { return {op(x).clone()}; };
}

bool is_prepared(const replayer::Executor& executor) { return executor.stats().prepared > 0; }

class KernelTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(KernelTest, LeavesTheBitsOfTheOp) {
  const Case each = cases()[GetParam()];
  bool was_prepared = false;
  for (const Lie& lie : lies()) {
    Tensors inputs;
    for (std::size_t i = 0; i < each.operands; ++i) inputs.push_back(lie.make());
    const StepBody body = body_of(each);
    const auto recording = recorded(body, inputs);
    const auto executor =
        replayer::cpu::make_executor(replayer::cpu::plan(recording), default_generator());
    was_prepared |= is_prepared(*executor);
    for (int round = 0; round < 3; ++round) {
      // in other memory each time, which lies in the same way
      Tensors now;
      for (const at::Tensor& input : inputs) {
        now.push_back(lie.make());
        if (round != 1) now.back().copy_(round == 0 ? input : at::randn(input.sizes()));
      }
      EXPECT_TRUE(leaves_the_same(run(*executor, now)[0], body(now)[0]))
          << lie.name << " round " << round;
    }
  }
  EXPECT_TRUE(was_prepared) << "no kernel took any of them";
}

INSTANTIATE_TEST_SUITE_P(Ops, KernelTest, ::testing::Range<std::size_t>(0, cases().size()),
                         [](const auto& info) { return cases()[info.param].name; });

/// Numbers at which arithmetic turns, beside elements that are zeros of both signs among others, in
/// whole vectors and after them.
TEST(ElementNumberTest, TurningNumbersLeaveTheBitsOfTheOp) {
  using Op = std::function<void(at::Tensor&, const at::Tensor&, double)>;
  const std::vector<std::pair<const char*, Op>> ops = {
      {"add", [](auto& y, const auto&, double n) { y.add_(n); }},
      {"add_alpha", [](auto& y, const auto& x, double n) { y.add_(x, n); }},
      {"sub", [](auto& y, const auto&, double n) { y.sub_(n); }},
      {"sub_alpha", [](auto& y, const auto& x, double n) { y.sub_(x, n); }},
      {"mul", [](auto& y, const auto&, double n) { y.mul_(n); }},
      {"div", [](auto& y, const auto&, double n) { y.div_(n); }},
      {"addcmul", [](auto& y, const auto& x, double n) { y.addcmul_(x, y, n); }},
      {"addcdiv", [](auto& y, const auto& x, double n) { y.addcdiv_(x, y, n); }},
      {"lerp", [](auto& y, const auto& x, double n) { y.lerp_(x, n); }},
      {"threshold", [](auto& y, const auto& x, double n) { y = at::threshold_backward(y, x, n); }},
      {"foreach_lerp", [](auto& y, const auto& x, double n) { at::_foreach_lerp_({y}, {x}, n); }},
  };
  constexpr double kHuge = std::numeric_limits<double>::infinity();
  constexpr double kTiny = 1e-45;
  const Tensors pool = {at::tensor({0.0F, -0.0F, 1.0F, -1.0F, 0.5F, -2.5F, 3e38F, 1e-45F})};
  for (const auto& [name, op] : ops) {
    for (const double number :
         {0.0, -0.0, 1.0, 1 + 1e-9, -1.0, 0.5, -0.5, 2.0, 0.3, kTiny, kHuge, -kHuge}) {
      for (const std::int64_t count : {1, 7, 8, 16, 33, 131}) {
        const auto draw = [&] { return pool[0].index({at::randint(8, {count})}); };
        const at::Tensor y = draw(), x = draw();
        const StepBody body = [&, &op = op](const Tensors& tensors) -> Tensors {
          at::Tensor made = tensors[0] * 1;
          op(made, tensors[1], number);
          return {made.clone()};
        };
        const auto recording = recorded(body, {y, x});
        const auto executor =
            replayer::cpu::make_executor(replayer::cpu::plan(recording), default_generator());
        EXPECT_TRUE(leaves_the_same(run(*executor, {y, x})[0], body({y, x})[0]))
            << name << " by " << number << " of " << count;
      }
    }
  }
}

/// Zeros are left out of what MKL is given.
TEST(SquareRootTest, ZerosBesideWhateverElse) {
  for (const double zeros : {0.0, 0.001, 0.5, 0.999, 1.0}) {
    for (const std::int64_t count : {1, 3, 17, 1024, 5003}) {
      at::Tensor x = at::rand({count}) * at::pow(2, at::randint(-149, 127, {count}));
      x.masked_fill_(at::rand({count}) < 0.1, std::numeric_limits<float>::denorm_min() * 5);
      x.masked_fill_(at::rand({count}) < 0.1, std::numeric_limits<float>::infinity());
      x.masked_fill_(at::rand({count}) < 0.1, std::numeric_limits<float>::quiet_NaN());
      x.masked_fill_(at::rand({count}) < 0.1, -1);
      x.masked_fill_(at::rand({count}) < zeros, 0.0);
      x.masked_fill_(at::rand({count}) < zeros / 2, -0.0);
      const StepBody body = [](const Tensors& tensors) -> Tensors {
        at::Tensor root = tensors[0] * 1;
        root.sqrt_();
        return {at::sqrt(tensors[0]).clone(), root.clone()};
      };
      const auto recording = recorded(body, {x});
      const auto executor =
          replayer::cpu::make_executor(replayer::cpu::plan(recording), default_generator());
      const Tensors found = run(*executor, {x}), expected = body({x});
      EXPECT_TRUE(leaves_the_same(found[0], expected[0])) << zeros << " of " << count;
      EXPECT_TRUE(leaves_the_same(found[1], expected[1])) << zeros << " of " << count;
    }
  }
}

TEST(ElementNumberTest, WhatFloat32CannotHoldIsNotFit) {
  const auto fit = [](double number) {
    const c10::IValue value(number);
    float taken = 0;
    return replayer::cpu::ElementNumber(value, -1).take(taken);
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
  explicit RandomProgram(std::uint32_t seed) : random_(seed), most_(seed % 2 == 0) {
    for (int i = 0; i < 24; ++i) {
      lines_.push_back({draw() % 12, draw(), draw(), draw()});
    }
  }

  Tensors operator()(const Tensors& inputs) const {
    Tensors pool;
    for (const at::Tensor& input : inputs) pool.push_back(input);
    for (const Line& line : lines_) run(line, pool);
    Tensors results;
    // of some programs most of what is made is read by the next ops alone
    for (std::size_t i = 0; i < pool.size(); i += most_ ? 1 : 5) results.push_back(pool[i].clone());
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
  bool most_;  ///< of what it makes is a result
  std::vector<Line> lines_;
};

using Digests = std::vector<std::optional<trace::Digest>>;

/// How many ops have a digest in both; those must be equal.
std::size_t compared(const Digests& some, const Digests& others) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < std::min(some.size(), others.size()); ++i) {
    if (!some[i] || !others[i]) continue;
    ++count;
    EXPECT_EQ(*some[i], *others[i]) << "op " << i;
  }
  return count;
}

TEST(NoKernelTest, ATensorThatStandsForAnotherIsLeftToTheDispatcher) {
  const StepBody body = [](const Tensors& x) -> Tensors {
    return {(at::_neg_view(x[0] * 2) * x[0]).clone()};
  };
  const Tensors inputs = {awkward({3, 37})};
  for (const bool kernels : {false, true}) {
    const auto executor = replayer::cpu::make_executor(
        replayer::cpu::plan(recorded(body, inputs), {.kernels = kernels}), default_generator());
    EXPECT_TRUE(same_bits(run(*executor, inputs)[0], body(inputs)[0])) << "kernels " << kernels;
  }
}

TEST(FusionTest, RandomProgramsLeaveTheEagerBits) {
  std::size_t chained = 0, ops = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const RandomProgram program(seed);
    const auto inputs = [] {
      return Tensors{at::randn({40, 60}), at::randn({40, 60}), at::randn({17}),
                     at::randn({40, 60}), at::randn({17}),     at::randn({3, 5})};
    };
    const StepBody body = [&](const Tensors& x) { return program(x); };
    const auto recording = recorded(body, inputs());
    Digests of_fused;
    for (const bool kernels : {true, false}) {
      for (const bool fusion : {true, false}) {
        if (fusion && !kernels) continue;
        const auto executor = replayer::cpu::make_executor(
            replayer::cpu::plan(recording, {.kernels = kernels, .fusion = fusion}),
            default_generator());
        for (int round = 0; round < 2; ++round) {
          at::manual_seed(seed + static_cast<std::uint64_t>(round));
          const Tensors planned = inputs();
          Tensors eager;
          for (const at::Tensor& input : planned) eager.push_back(input.clone());
          Digests digests;
          const Tensors found =
              run(*executor, planned, {.digests = round == 1 ? &digests : nullptr});
          if (fusion) of_fused = digests;
          ops += compared(digests, of_fused);
          const Tensors expected = body(eager);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_TRUE(same_bits(found[i], expected[i]))
                << "seed " << seed << " result " << i << " kernels " << kernels << " fusion "
                << fusion;
          }
          for (std::size_t i = 0; i < eager.size(); ++i) {
            ASSERT_TRUE(same_bits(planned[i], eager[i])) << "seed " << seed << " input " << i;
          }
        }
        if (fusion) chained += executor->stats().calls - executor->stats().stages;
      }
    }
  }
  EXPECT_GT(chained, 500u);
  EXPECT_GT(ops, 1000u);
}

}  // namespace
}  // namespace steptape::tests
