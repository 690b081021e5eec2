#include "replayer/planner/passes/passes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "replayer/planner/analysis/refusals.h"
#include "replayer/runtime/backends.h"
#include "tests/replayer/recorded_steps.h"

namespace steptape::tests {
namespace {

constexpr replayer::FillsResults kNoKernels = [](const c10::FunctionSchema&) { return false; };

using replayer::PassOptions;

std::size_t count(const replayer::Program& program, replayer::Treatment treatment) {
  std::size_t n = 0;
  for (const auto& instruction : program.instructions)
    n += instruction.treatment == treatment ? 1 : 0;
  return n;
}

std::size_t count(const replayer::Program& program, replayer::Placement placement) {
  std::size_t n = 0;
  for (const auto& buffer : program.buffers) {
    n += buffer.placement == placement && buffer.defined >= 0 ? 1 : 0;
  }
  return n;
}

/// Every body under every choice of passes: 0 to 31 are the bits elide, out, share, kernels,
/// fusion; drop and hoist are on in half of them.
class PassesTest : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {};

TEST_P(PassesTest, ProgramsWithAnyPassLeftOutGiveTheEagerBits) {
  const auto [index, choice] = GetParam();
  const NamedBody named = bodies()[index];
  const auto recording = recorded(named.body, named.inputs);
  ASSERT_TRUE(replayer::refusals_of(*recording, replayer::why_no_backend).empty())
      << replayer::refusals_of(*recording, replayer::why_no_backend)[0].text();
  const PassOptions options{.drop_dead = ((choice ^ choice >> 3) & 1) != 0,
                            .elide_views = (choice & 1) != 0,
                            .out_variants = (choice & 2) != 0,
                            .hoist_constants = ((choice ^ choice >> 3) & 2) != 0,
                            .share_memory = (choice & 4) != 0,
                            .kernels = (choice & 8) != 0,
                            .fusion = (choice & 16) != 0};
  const auto executor =
      replayer::cpu::make_executor(replayer::cpu::plan(recording, options), default_generator());
  for (int i = 0; i < 3; ++i) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& input : named.inputs) inputs.push_back(at::rand_like(input));
    at::manual_seed(i);
    const std::vector<at::Tensor> found = run(*executor, inputs);
    const at::Tensor random_found = at::rand({2});
    at::manual_seed(i);
    const std::vector<at::Tensor> expected = named.body(inputs);
    const at::Tensor random_expected = at::rand({2});
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t r = 0; r < found.size(); ++r) {
      EXPECT_TRUE(same_bits(found[r], expected[r])) << named.name << " result " << r;
    }
    EXPECT_TRUE(same_bits(random_found, random_expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Bodies, PassesTest,
                         ::testing::Combine(::testing::Range<std::size_t>(0, bodies().size()),
                                            ::testing::Range(0, 32)),
                         [](const auto& info) {
                           return bodies()[std::get<0>(info.param)].name + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

/// Runs of the plan beside the body, whose bits they must leave; the plan's calls.
std::uint64_t calls_of(const StepBody& body, const std::vector<at::Tensor>& inputs) {
  const auto executor = replayer::cpu::make_executor(replayer::cpu::plan(recorded(body, inputs)),
                                                     default_generator());
  for (int round = 0; round < 3; ++round) {
    std::vector<at::Tensor> now, eager;
    for (const at::Tensor& input : inputs) {
      now.push_back(at::is_floating_point(input) ? at::rand_like(input) : input.clone());
      eager.push_back(now.back().clone());
    }
    at::manual_seed(round);
    const std::vector<at::Tensor> found = run(*executor, now);
    const at::Tensor random = at::rand({1});
    at::manual_seed(round);
    const std::vector<at::Tensor> expected = body(eager);
    EXPECT_TRUE(same_bits(random, at::rand({1})));
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(same_bits(now[i], eager[i])) << i;
  }
  return executor->stats().calls;
}

TEST(DropDeadTest, WhatNobodyReadsIsNotRun) {
  const StepBody body = [](const auto& x) -> std::vector<at::Tensor> {
    at::Tensor unread = x[0].mul(2).add(1);
    unread.mul_(3);
    at::Tensor read = x[0].mul(4);
    read.add_(unread.sub(unread).t());
    at::Tensor late = read.exp();
    return {x[0].mm(x[0])};
  };
  EXPECT_EQ(calls_of(body, {at::rand({4, 4})}), 1U);
}

TEST(DropDeadTest, WhatWritesReadsOrMayThrowStays) {
  const StepBody body = [](const auto& x) -> std::vector<at::Tensor> {
    x[0].add_(x[0].mul(2));                          // seen outside
    at::Tensor random = at::rand({2});               // moves the generator on
    at::Tensor chosen = x[0].index_select(0, x[1]);  // may throw
    at::Tensor part = x[0].clone();
    part.narrow(0, 0, 2).add_(1);  // through a view
    return {part.mul(2)};
  };
  EXPECT_EQ(calls_of(body, {at::rand({4, 4}), at::zeros({2}, at::kLong)}), 7U);
}

TEST(HoistConstantsTest, WhatIsTheSameInEachRunIsMadeOnce) {
  const StepBody body = [](const auto& x) -> std::vector<at::Tensor> {
    const at::Tensor mask = at::ones({6, 6}).tril();
    const at::Tensor places = at::full({6}, 2).add(1);
    return {x[0].mul(mask).add(places), at::zeros_like(x[0]).sub(x[0])};
  };
  EXPECT_EQ(calls_of(body, {at::rand({6, 6})}), 3U);
}

TEST(HoistConstantsTest, NotWhatIsWrittenSeenOrDrawn) {
  const StepBody body = [](const auto& x) -> std::vector<at::Tensor> {
    at::Tensor written = at::zeros({4});
    const at::Tensor before = written.mul(3);  // of what is written later
    written.narrow(0, 1, 2).add_(x[0].narrow(0, 0, 2));
    const at::Tensor given = at::ones({4});
    return {written.add(before), given, at::rand({4}).mul(2)};
  };
  EXPECT_EQ(calls_of(body, {at::rand({4})}), 7U);
}

TEST(HoistConstantsTest, MemoryOfWhatStaysIsSharedWithNobody) {
  const StepBody body = [](const auto& x) -> std::vector<at::Tensor> {
    at::Tensor each = x[0];
    for (int i = 0; i < 4; ++i) each = each.add(1).mul(at::full({64}, 1.5 + i)).exp().log();
    return {each.clone()};
  };
  calls_of(body, {at::rand({64})});
}

TEST(ElideViewsTest, ViewsCostNoCall) {
  const auto recording = recorded(
      [](const auto& x) -> std::vector<at::Tensor> {
        return {x[0].t().view({8, 6}).unsqueeze(0).expand({2, 8, 6}).sum()};
      },
      {at::rand({6, 8}).t().contiguous().t()});
  replayer::Program program = replayer::lower(recording);
  EXPECT_EQ(count(program, replayer::Treatment::kGeometry), 0U);
  replayer::elide_views(program);
  EXPECT_EQ(count(program, replayer::Treatment::kCall), 1U);
}

TEST(OutVariantsTest, TemporariesGoToTheArenaAndResultsToMemoryOfTheirOwn) {
  const auto recording =
      recorded([](const auto& x) -> std::vector<at::Tensor> { return {x[0].mm(x[0]).mm(x[0])}; },
               {at::rand({8, 8})});
  replayer::Program program = replayer::lower(recording);
  replayer::use_out_variants(program, kNoKernels);
  EXPECT_EQ(count(program, replayer::Treatment::kOut), 2U);
  EXPECT_EQ(count(program, replayer::Placement::kArena), 1U);
  EXPECT_EQ(count(program, replayer::Placement::kMade), 1U);
}

TEST(OutVariantsTest, ResultsThatNeedMoreMemoryThanTheyFillAreAdopted) {
  // mse_loss sums in the memory of its terms
  const auto recording = recorded(
      [](const auto& x) -> std::vector<at::Tensor> { return {at::mse_loss(x[0], x[0] + 1) * 2}; },
      {at::rand({8, 8})});
  const auto executor =
      replayer::cpu::make_executor(replayer::cpu::plan(recording), default_generator());
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = at::rand({8, 8});
    EXPECT_TRUE(same_bits(run(*executor, {x})[0], at::mse_loss(x, x + 1) * 2));
  }
}

TEST(OutVariantsTest, GeneratedOutVariantsAreNotUsed) {
  // relu.out is generated: it calls relu and copies
  const auto recording =
      recorded([](const auto& x) -> std::vector<at::Tensor> { return {at::relu(x[0]).mm(x[0])}; },
               {at::rand({8, 8})});
  replayer::Program program = replayer::lower(recording);
  replayer::use_out_variants(program, kNoKernels);
  EXPECT_EQ(count(program, replayer::Treatment::kOut), 1U);  // of mm
  EXPECT_EQ(count(program, replayer::Placement::kAdopted), 1U);
}

TEST(OutVariantsTest, AKernelFillsTheResultOfAnOpThatHasNoOutVariant) {
  const auto recording =
      recorded([](const auto& x) -> std::vector<at::Tensor> { return {at::relu(x[0]).mm(x[0])}; },
               {at::rand({8, 8})});
  const replayer::Program program = replayer::cpu::plan(recording);
  EXPECT_EQ(count(program, replayer::Treatment::kInto), 1U);
  EXPECT_EQ(count(program, replayer::Placement::kArena), 1U);
}

}  // namespace
}  // namespace steptape::tests
