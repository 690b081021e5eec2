#include "trace/windows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "replayer/planner/numbers/windows.h"
#include "tests/replayer/recorded_steps.h"
#include "trace/formula.h"
#include "trace/validate.h"

namespace steptape::tests {
namespace {

using trace::Index;

/// A step that slices or selects, with its data as its one argument, whose op `op` begins at what
/// leaf 0 is.
trace::Recording with_site(const trace::Recording& recorded, Index op, double end_after = 0) {
  trace::Recording recording = recorded;
  recording.leaves.push_back({trace::LeafKind::kArgument, "inputs[1]"});
  recording.formulas.push_back(trace::leaf(0));
  recording.scalars.push_back({op, trace::kBeginsAt, trace::kNone, trace::kNone, 0});
  if (end_after == 0) return recording;
  recording.formulas.push_back(trace::leaf(0) + trace::constant(end_after));
  recording.scalars.push_back({op, trace::kBeginsAt + 1, trace::kNone, trace::kNone, 1});
  return recording;
}

std::optional<std::int64_t> offset_at(const trace::Recording& recording, double number) {
  return trace::WindowOfRun(recording, recording.windows.at(0)).offset(std::vector{number});
}

/// Where ATen has the view, in bytes from the start of `data`; none where it throws, or gives
/// another size than `size`.
template <typename View>
std::optional<std::int64_t> offset_of(View&& view, c10::IntArrayRef sizes) {
  try {
    const at::Tensor given = view();
    if (given.sizes() != sizes) return std::nullopt;
    return given.storage_offset() * static_cast<std::int64_t>(given.itemsize());
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

TEST(WindowsTest, ASelectBeginsWhereATenHasIt) {
  const at::Tensor data = at::rand({7, 5, 3}).transpose(0, 1);
  for (std::int64_t dimension = -3; dimension < 3; ++dimension) {
    auto recorded_step = recorded(
        [dimension](const auto& x) -> std::vector<at::Tensor> {
          return {x[0].select(dimension, 1).sum()};
        },
        {data});
    trace::Recording recording = with_site(*recorded_step, 0);
    ASSERT_TRUE(replayer::make_windows(recording, {0}).empty());
    const at::Tensor first = data.select(dimension, 1);
    for (std::int64_t at = -9; at < 9; ++at) {
      const auto expected = offset_of([&] { return data.select(dimension, at); }, first.sizes());
      EXPECT_EQ(offset_at(recording, static_cast<double>(at)), expected) << dimension << " " << at;
    }
  }
}

TEST(WindowsTest, ASliceBeginsWhereATenHasIt) {
  const at::Tensor data = at::rand({11, 6});
  for (const std::int64_t step : {1, 2, 3}) {
    for (const std::int64_t count : {1, 2, 4}) {
      auto recorded_step = recorded(
          [&](const auto& x) -> std::vector<at::Tensor> {
            return {x[0].slice(0, 1, 1 + count, step).sum()};
          },
          {data});
      trace::Recording recording = with_site(*recorded_step, 0, static_cast<double>(count));
      ASSERT_TRUE(replayer::make_windows(recording, {0}).empty());
      const at::Tensor first = data.slice(0, 1, 1 + count, step);
      for (std::int64_t at = -14; at < 14; ++at) {
        const auto expected =
            offset_of([&] { return data.slice(0, at, at + count, step); }, first.sizes());
        EXPECT_EQ(offset_at(recording, static_cast<double>(at)), expected) << count << " " << at;
      }
    }
  }
}

TEST(WindowsTest, NoNumberThatIsNotAnIndexGivesOne) {
  auto step =
      recorded([](const auto& x) -> std::vector<at::Tensor> { return {x[0].select(0, 1).sum()}; },
               {at::rand({4, 4})});
  trace::Recording recording = with_site(*step, 0);
  ASSERT_TRUE(replayer::make_windows(recording, {0}).empty());
  for (const double number : {0.5, 1e300, -1e300, std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(offset_at(recording, number), std::nullopt) << number;
  }
}

TEST(WindowsTest, WhatLiesInAWindowGoesWithIt) {
  auto step = recorded(
      [](const auto& x) -> std::vector<at::Tensor> {
        return {x[0].slice(0, 2, 6).t().mul(2), x[0].slice(0, 2, 6).select(0, 1).mul(3)};
      },
      {at::rand({8, 4})});
  const std::size_t buffers = step->buffers.size();
  std::set<Index> ops;
  trace::Recording recording = *step;
  recording.leaves.push_back({trace::LeafKind::kArgument, "inputs[1]"});
  recording.formulas.push_back(trace::leaf(0));
  for (Index op = 0; op < recording.ops.size(); ++op) {
    if (recording.operator_of(recording.ops[op]).name != "aten::slice") continue;
    ops.insert(op);
    recording.scalars.push_back({op, trace::kBeginsAt, trace::kNone, trace::kNone, 0});
  }
  ASSERT_EQ(ops.size(), 2U);
  ASSERT_TRUE(replayer::make_windows(recording, ops).empty());
  ASSERT_EQ(recording.windows.size(), 1U) << "both ops give the same";
  EXPECT_EQ(recording.windows[0].buffer, buffers);
  const auto on_it =
      std::ranges::count(recording.tensors, recording.windows[0].buffer, &trace::Tensor::buffer);
  EXPECT_EQ(on_it, 3) << "the slice, its transpose and a row of it";
  EXPECT_EQ(recording.buffers[buffers].bytes, std::uint64_t{16} * sizeof(float));
  EXPECT_NO_THROW(trace::validate(recording));
}

/// Steps of which no view can be a window, though op 0 slices.
struct Refused {
  std::string name;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> step;
};
class NoWindowTest : public testing::TestWithParam<Refused> {};

TEST_P(NoWindowTest, NumbersStay) {
  auto step = recorded(GetParam().step, {at::rand({8, 4})});
  trace::Recording recording = with_site(*step, 0);
  const trace::Recording before = recording;
  EXPECT_EQ(replayer::make_windows(recording, {0}), std::set<Index>{0});
  EXPECT_EQ(recording, before);
}

INSTANTIATE_TEST_SUITE_P(
    Steps, NoWindowTest,
    testing::Values(
        Refused{"IsAResult", [](const auto& x) { return std::vector{x[0].slice(0, 2, 6)}; }},
        Refused{"LeadsToAResult",
                [](const auto& x) { return std::vector{x[0].slice(0, 2, 6).t()}; }},
        Refused{"TheWholeIsWritten",
                [](const auto& x) {
                  const at::Tensor view = x[0].slice(0, 2, 6);
                  x[0].mul_(2);
                  return std::vector{view.sum()};
                }},
        Refused{"IsWrittenAndTheWholeRead",
                [](const auto& x) {
                  x[0].slice(0, 2, 6).mul_(2);
                  return std::vector{x[0].sum()};
                }},
        Refused{"IsWrittenAndAnotherPlaceRead",
                [](const auto& x) {
                  x[0].slice(0, 2, 6).mul_(2);
                  return std::vector{x[0].select(0, 7).sum()};
                }},
        Refused{"IsTheSameAsAPlaceThatStays",
                [](const auto& x) {
                  const at::Tensor moving = x[0].slice(0, 2, 6);
                  return std::vector{moving.sum(), x[0].slice(0, 1, 7).slice(0, 1, 5).sum()};
                }},
        Refused{"IsSeenFromTheStartOfMemory",
                [](const auto& x) {
                  const at::Tensor view = x[0].slice(0, 2, 6);
                  return std::vector{view.as_strided({2}, {1}, 9).sum()};
                }}),
    [](const testing::TestParamInfo<Refused>& info) { return info.param.name; });

TEST(WindowsTest, ARecordingWithOtherNumbersGetsThoseOfThePlan) {
  const auto step_at = [](std::int64_t at) {
    return recorded(
        [at](const auto& x) -> std::vector<at::Tensor> {
          return {x[0].slice(0, at, at + 3).t().mul(2)};
        },
        {at::rand({8, 4})});
  };
  trace::Recording plan = with_site(*step_at(2), 0, 3);
  ASSERT_TRUE(replayer::make_windows(plan, {0}).empty());
  const trace::Recording other = replayer::with_windows_of(plan, *step_at(4));
  EXPECT_EQ(other.tensors, plan.tensors);
  EXPECT_EQ(other.windows, plan.windows);
}

}  // namespace
}  // namespace steptape::tests
