#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "replayer/planner/passes/passes.h"
#include "tests/replayer/recorded_steps.h"

/// Out variants that do not keep the result that they are given.
namespace steptape::tests {
namespace {

using at::Reduction::Reduction;

class Heard final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;
};

/// Runs a plan of `body` four times over new numbers: the bits of eager, and no warning.
void leaves_the_bits_in_silence(const StepBody& body, at::IntArrayRef sizes = {8, 6}) {
  const auto inputs = [&] { return std::vector<at::Tensor>{at::rand(sizes), at::rand(sizes)}; };
  const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs())),
                                                     default_generator());
  for (int round = 0; round < 4; ++round) {
    const std::vector<at::Tensor> now = inputs();
    const std::vector<at::Tensor> expected = body(now);
    Heard heard;
    std::vector<at::Tensor> found;
    {
      const c10::WarningUtils::WarningHandlerGuard until_the_end(&heard);
      found = run(*executor, now);
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(found[i], expected[i])) << "round " << round << " result " << i;
    }
    EXPECT_EQ(heard.messages, std::vector<std::string>());
  }
}

using Loss = at::Tensor (*)(const at::Tensor& x, const at::Tensor& y, std::int64_t reduction);

struct NamedLoss {
  std::string name;
  Loss loss;
};

std::vector<NamedLoss> losses() {
  return {
      {"huber", [](const auto& x, const auto& y, auto r) { return at::huber_loss(x, y, r); }},
      {"mse", [](const auto& x, const auto& y, auto r) { return at::mse_loss(x, y, r); }},
      {"smooth_l1",
       [](const auto& x, const auto& y, auto r) { return at::smooth_l1_loss(x, y, r); }},
      {"soft_margin",
       [](const auto& x, const auto& y, auto r) { return at::soft_margin_loss(x, y, r); }},
      {"binary_cross_entropy",
       [](const auto& x, const auto& y, auto r) { return at::binary_cross_entropy(x, y, {}, r); }},
      {"multi_margin",
       [](const auto& x, const auto&, auto r) {
         return at::multi_margin_loss(x, at::arange(8).remainder(6), 1, 1, {}, r);
       }},
      {"nll", [](const auto& x, const auto&,
                 auto r) { return at::nll_loss(x, at::arange(8).remainder(6), {}, r); }},
  };
}

class LossTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(LossTest, IsUsedFurtherAndReturned) {
  const Loss loss = losses()[GetParam()].loss;
  for (const auto reduction : {Reduction::None, Reduction::Mean, Reduction::Sum}) {
    SCOPED_TRACE(reduction);
    leaves_the_bits_in_silence([&](const auto& x) -> std::vector<at::Tensor> {
      return {loss(x[0], x[1], reduction) + loss(x[1], x[0], reduction),
              loss(x[0], x[1], reduction)};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, LossTest, ::testing::Range<std::size_t>(0, losses().size()),
                         [](const auto& info) { return losses()[info.param].name; });

TEST(OutTrialTest, LossesOfOneElementResizeTheirResultAndBack) {
  for (const NamedLoss& named : losses()) {
    if (named.name == "nll" || named.name == "multi_margin") continue;  // of rows
    SCOPED_TRACE(named.name);
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1}, {1, 1}}) {
      leaves_the_bits_in_silence(
          [&](const auto& x) -> std::vector<at::Tensor> {
            return {named.loss(x[0], x[1], Reduction::Mean) * 2,
                    named.loss(x[1], x[0], Reduction::Sum)};
          },
          sizes);
    }
  }
}

TEST(OutTrialTest, AVariantThatKeepsItsResultIsUsed) {
  const StepBody body = [](const auto& x) -> std::vector<at::Tensor> {
    return {at::cumsum(x[0] * 2, 0) + at::logsumexp(x[1], {1}, true)};
  };
  leaves_the_bits_in_silence(body);
  EXPECT_GT(replayer::cpu::plan(recorded(body, {at::rand({8, 6}), at::rand({8, 6})})).arena_bytes,
            0U);
}

}  // namespace
}  // namespace steptape::tests
