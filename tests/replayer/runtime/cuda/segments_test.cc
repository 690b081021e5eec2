#include "replayer/runtime/cuda/plan/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/replayer/runtime/cuda/on_gpu.h"

namespace steptape::tests {
namespace {

using replayer::Placement;
using replayer::Program;
using replayer::cuda::Segment;
using replayer::cuda::SegmentKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<SegmentKind> kinds_of(const std::vector<Segment>& segments) {
  std::vector<SegmentKind> kinds;
  for (const Segment& segment : segments) kinds.push_back(segment.kind);
  return kinds;
}

std::string op_name(const Program& program, trace::Index op) {
  return program.recording->operator_of(program.recording->ops[op]).name;
}

std::vector<std::string> names_of(const Program& program, const Segment& segment) {
  std::vector<std::string> names;
  for (const trace::Index op : segment.ops) names.push_back(op_name(program, op));
  return names;
}

at::Tensor ramp() { return at::arange(6, at::kFloat).view({2, 3}); }

TEST(DevicePartsTest, AStepOnTheDeviceIsOneGraph) {
  const Program program = on_gpu(
      [](const auto& in) { return std::vector<at::Tensor>{(in[0] * 2 + in[0]).relu().sum()}; },
      {ramp()});
  const auto segments = segments_of(program);
  EXPECT_THAT(kinds_of(segments), ElementsAre(SegmentKind::kGraph));
  EXPECT_THAT(names_of(program, segments[0]),
              ElementsAre("aten::mul", "aten::add", "aten::relu", "aten::sum"));
}

TEST(DevicePartsTest, AReadOfTheHostStandsBetweenGraphs) {
  const Program program = on_gpu(
      [](const auto& in) {
        const at::Tensor sum = in[0].sum();
        const bool is_large = sum.item().toDouble() > 3;
        return std::vector<at::Tensor>{is_large ? sum * 2 : sum};
      },
      {ramp()});
  const auto segments = segments_of(program);
  EXPECT_THAT(kinds_of(segments),
              ElementsAre(SegmentKind::kGraph, SegmentKind::kBetween, SegmentKind::kGraph));
  EXPECT_EQ(segments[1].why, "it gives the host a value");
}

TEST(DevicePartsTest, AShapeThatFollowsFromBytesStandsBetweenGraphs) {
  const Program program = on_gpu(
      [](const auto& in) { return std::vector<at::Tensor>{(in[0] + 1).nonzero() + 1}; }, {ramp()});
  const auto segments = segments_of(program);
  EXPECT_THAT(kinds_of(segments),
              ElementsAre(SegmentKind::kGraph, SegmentKind::kBetween, SegmentKind::kGraph));
  EXPECT_THAT(segments[1].why, HasSubstr("shape"));
}

TEST(DevicePartsTest, WhatTheHostDoesComesAheadOfTheGraph) {
  const auto on_host = [](const trace::Buffer& buffer) { return buffer.path == "inputs[1]"; };
  const Program program = on_gpu(
      [](const auto& in) {
        at::Tensor out = in[0] * 2;
        in[1].add_(1);
        return std::vector<at::Tensor>{out + 1};
      },
      {ramp(), at::zeros({})}, on_host);
  const auto segments = segments_of(program);
  ASSERT_THAT(kinds_of(segments), ElementsAre(SegmentKind::kAhead, SegmentKind::kGraph));
  EXPECT_THAT(names_of(program, segments[0]), ElementsAre("aten::add_"));
  EXPECT_THAT(names_of(program, segments[1]), ElementsAre("aten::mul", "aten::add"));
}

TEST(DevicePartsTest, WhatTheHostWritesAfterAGraphReadItIsNotMovedAhead) {
  const auto on_host = [](const trace::Buffer& buffer) { return buffer.path == "inputs[1]"; };
  const Program program = on_gpu(
      [](const auto& in) {
        at::Tensor out = in[0] * in[1];
        in[1].add_(1);
        return std::vector<at::Tensor>{out + in[1]};
      },
      {ramp(), at::ones({})}, on_host);
  const auto segments = segments_of(program);
  ASSERT_THAT(kinds_of(segments),
              ElementsAre(SegmentKind::kGraph, SegmentKind::kAhead, SegmentKind::kGraph));
  EXPECT_THAT(names_of(program, segments[1]), ElementsAre("aten::add_"));
}

TEST(DevicePartsTest, ABatchOfTheHostIsBroughtAheadAndLands) {
  const auto on_host = [](const trace::Buffer& buffer) { return buffer.path == "inputs[0]"; };
  Program program = on_gpu(
      [](const auto& in) {
        const at::Tensor there = in[0].clone();  // stands for a copy to the device
        return std::vector<at::Tensor>{there * 2 + 1};
      },
      {ramp()}, on_host);
  const auto segments = segments_of(program);
  ASSERT_THAT(kinds_of(segments), ElementsAre(SegmentKind::kAhead, SegmentKind::kGraph));
  EXPECT_THAT(names_of(program, segments[0]), ElementsAre("aten::clone"));
  replayer::cuda::place_buffers(program, segments);
  const trace::Op& clone = program.recording->ops[segments[0].ops[0]];
  const auto& there = std::get<trace::TensorRef>(clone.outputs[0].data);
  const trace::BufferId staging = program.recording->tensors[there.id].buffer;
  EXPECT_EQ(program.buffers[staging].placement, Placement::kStaging);
  const trace::BufferId result = program.recording->tensors[program.recording->results[0]].buffer;
  EXPECT_EQ(program.buffers[result].placement, Placement::kCaptured);
}

TEST(DevicePartsTest, AnArrayOfTheHostInAnOpOfTheDeviceStandsBetweenGraphs) {
  const auto on_host = [](const trace::Buffer& buffer) { return buffer.path == "inputs[1]"; };
  const Program program = on_gpu(
      [](const auto& in) {
        return std::vector<at::Tensor>{at::index_select(in[0] * 2, 0, in[1]) + 1};
      },
      {ramp(), at::arange(2)}, on_host);
  const auto segments = segments_of(program);
  ASSERT_THAT(kinds_of(segments),
              ElementsAre(SegmentKind::kGraph, SegmentKind::kBetween, SegmentKind::kGraph));
  EXPECT_EQ(segments[1].why, "it takes an array from the host");
}

TEST(DevicePartsTest, AGraphIsCutWhereAGeneratorIsSetBack) {
  const Program program = on_gpu(
      [](const auto& in) {
        at::Generator generator = default_generator()("default");
        const at::Tensor first = at::bernoulli(in[0], 0.5);
        const at::Tensor state = generator.get_state();
        const at::Tensor second = at::bernoulli(first * 2, 0.5);
        const at::Tensor third = at::bernoulli(second * 2, 0.5);
        generator.set_state(state);
        return std::vector<at::Tensor>{at::bernoulli(third * 2, 0.5), third};
      },
      {ramp()});
  ASSERT_THAT(program.recording->seeks, SizeIs(1));
  const auto segments = segments_of(program);
  EXPECT_THAT(kinds_of(segments),
              ElementsAre(SegmentKind::kGraph, SegmentKind::kGraph, SegmentKind::kGraph));
  EXPECT_THAT(names_of(program, segments[0]), ElementsAre("aten::bernoulli"));
  EXPECT_THAT(
      names_of(program, segments[1]),
      ElementsAre("aten::mul", "aten::bernoulli", "aten::mul", "aten::bernoulli", "aten::mul"));
  EXPECT_THAT(names_of(program, segments[2]), ElementsAre("aten::bernoulli"));
}

TEST(DevicePartsTest, OpsThatAreKeptOutSayWhy) {
  const Program program =
      on_gpu([](const auto& in) { return std::vector<at::Tensor>{((in[0] * 2).relu() + 1).sum()}; },
             {ramp()});
  const auto whole = segments_of(program);
  ASSERT_THAT(kinds_of(whole), ElementsAre(SegmentKind::kGraph));
  const trace::Index relu = whole[0].ops[1];
  const auto segments = segments_of(program, {{relu, "it ended the capture"}});
  ASSERT_THAT(kinds_of(segments),
              ElementsAre(SegmentKind::kGraph, SegmentKind::kBetween, SegmentKind::kGraph));
  EXPECT_EQ(segments[1].ops, std::vector<trace::Index>{relu});
  EXPECT_EQ(segments[1].why, "it ended the capture");
}

TEST(DevicePartsTest, EachCallIsInOnePart) {
  for (const NamedBody& named : bodies()) {
    const Program program = on_gpu(named.body, named.inputs);
    std::vector<trace::Index> ops;
    for (const Segment& segment : segments_of(program)) {
      EXPECT_FALSE(segment.ops.empty());
      ops.insert(ops.end(), segment.ops.begin(), segment.ops.end());
    }
    std::ranges::sort(ops);
    EXPECT_EQ(std::ranges::adjacent_find(ops), ops.end()) << named.name;
    const auto places = replayer::writes_of(*program.recording).places;
    EXPECT_EQ(ops.size(), replayer::order_of(program, places).size()) << named.name;
  }
}

}  // namespace
}  // namespace steptape::tests
