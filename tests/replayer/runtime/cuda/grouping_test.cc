#include "replayer/runtime/cuda/plan/grouping.h"

#include <ATen/ScalarOps.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/replayer/runtime/cuda/on_gpu.h"

namespace steptape::tests {
namespace {

using replayer::Program;
using replayer::cuda::ForeachArgument;
using replayer::cuda::ForeachOperator;
using replayer::cuda::Group;
using replayer::cuda::Segment;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

bool always(const ForeachOperator&, trace::Index) { return true; }

struct Grouped {
  Program program;
  std::vector<Segment> segments;
  std::vector<Group> groups;

  /// "_foreach_mul_.Scalar 3" of each group, in the order of a run.
  std::vector<std::string> words() const {
    std::vector<std::string> words;
    for (const Group& group : groups) {
      words.push_back(group.by->name.substr(std::string("aten::").size()) + "." +
                      group.by->overload + " " + std::to_string(group.ops.size()));
    }
    return words;
  }
};

Grouped grouped(const StepBody& body, const std::vector<at::Tensor>& inputs,
                const replayer::cuda::Agrees& agrees = always,
                const std::vector<trace::Index>& alone = {}) {
  Grouped made{on_gpu(body, inputs), {}, {}};
  made.segments = segments_of(made.program);
  made.groups = replayer::cuda::group_ops(made.program, made.segments, alone, agrees);
  return made;
}

std::vector<at::Tensor> tensors(int count, std::int64_t elements = 6) {
  std::vector<at::Tensor> made;
  for (int i = 0; i < count; ++i) made.push_back(at::arange(elements + i, at::kFloat) + i);
  return made;
}

/// Each op comes after those that it must: whoever writes what the other uses keeps its place.
void expect_in_order(const Grouped& made) {
  const trace::Recording& recording = *made.program.recording;
  std::vector<trace::Index> order;
  for (const Segment& segment : made.segments)
    order.insert(order.end(), segment.ops.begin(), segment.ops.end());
  const auto buffers = [&](trace::Index op) {
    std::set<trace::BufferId> used;
    for (const auto* values : {&recording.ops[op].inputs, &recording.ops[op].outputs}) {
      for (const trace::Value& value : *values) {
        for_each_tensor(value, [&](trace::TensorId id) {
          if (id != trace::kNoTensor) used.insert(recording.tensors[id].buffer);
        });
      }
    }
    return used;
  };
  for (std::size_t later = 0; later < order.size(); ++later) {
    for (std::size_t first = 0; first < later; ++first) {
      if (order[first] < order[later]) continue;
      // moved in front of one that was recorded before it: neither writes what the other uses
      for (const trace::Index writer : {order[first], order[later]}) {
        const trace::Index other = writer == order[first] ? order[later] : order[first];
        const auto used = buffers(other);
        for (const trace::BufferId id : replayer::written_by(recording, recording.ops[writer])) {
          EXPECT_FALSE(used.contains(id)) << order[first] << " before " << order[later];
        }
      }
    }
  }
}

TEST(DeviceGroupingTest, ALoopOverTensorsBecomesOneCallAnOp) {
  const Grouped made = grouped(
      [](const auto& in) {
        for (int i = 0; i < 3; ++i) {
          in[i].mul_(0.9).add_(in[3 + i], 0.1);
          in[6 + i].addcdiv_(in[i], in[i].sqrt().add_(1e-8), -0.001);
        }
        return std::vector<at::Tensor>{};
      },
      [] {
        auto in = tensors(3);
        for (int more = 0; more < 2; ++more) {
          for (const at::Tensor& tensor : tensors(3)) in.push_back(tensor);
        }
        return in;
      }());
  EXPECT_THAT(made.words(),
              ElementsAre("_foreach_mul_.Scalar 3", "_foreach_add_.List 3", "_foreach_sqrt. 3",
                          "_foreach_add_.Scalar 3", "_foreach_addcdiv_.Scalar 3"));
  EXPECT_THAT(made.segments, SizeIs(1));
  EXPECT_THAT(made.segments[0].ops, SizeIs(15));
  expect_in_order(made);
}

TEST(DeviceGroupingTest, WhatDependsOnEachOtherStaysApart) {
  const Grouped made = grouped(
      [](const auto& in) {
        in[0].mul_(2);
        in[0].mul_(2);
        in[1].add_(in[0]);
        in[2].add_(in[1]);
        in[1].mul_(2);
        return std::vector<at::Tensor>{};
      },
      {at::ones({4}), at::ones({4}), at::ones({4})});
  EXPECT_THAT(made.groups, IsEmpty());
  expect_in_order(made);
}

TEST(DeviceGroupingTest, AWriteStaysBehindTheReadsBeforeIt) {
  const Grouped made = grouped(
      [](const auto& in) {
        in[0].add_(in[1]);
        in[1].mul_(2);
        in[2].mul_(2);
        in[3].add_(in[2]);
        return std::vector<at::Tensor>{};
      },
      {at::ones({4}), at::ones({4}), at::ones({4}), at::ones({4})});
  EXPECT_THAT(made.groups, IsEmpty());
  expect_in_order(made);
}

TEST(DeviceGroupingTest, OtherNumbersAndDtypesAreOtherGroups) {
  const Grouped made = grouped(
      [](const auto& in) {
        in[0].mul_(2.0);
        in[1].mul_(3.0);
        in[2].mul_(2);
        in[3].mul_(2.0);
        in[4].mul_(3.0);
        return std::vector<at::Tensor>{};
      },
      {at::ones({4}), at::ones({4}), at::ones({4}), at::ones({4}, at::kDouble), at::ones({4})});
  EXPECT_THAT(made.words(), ElementsAre("_foreach_mul_.Scalar 2"));
}

TEST(DeviceGroupingTest, WhatIsNoPlainFloatTensorStaysAsItIs) {
  const Grouped made = grouped(
      [](const auto& in) {
        for (int i = 0; i < 2; ++i) {
          in[i].mul_(2);                   // integers
          in[2 + i].select(1, 0).mul_(2);  // every second element
          in[4 + i].add_(in[6 + i]);       // a sum over rows
          in[8 + i].mul_(2);               // large
        }
        return std::vector<at::Tensor>{};
      },
      {at::ones({4}, at::kInt), at::ones({4}, at::kInt), at::ones({4, 2}), at::ones({4, 2}),
       at::ones({4, 2}), at::ones({4, 2}), at::ones({2}), at::ones({2}), at::ones({300'000}),
       at::ones({300'000})});
  EXPECT_THAT(made.groups, IsEmpty());
}

TEST(DeviceGroupingTest, OpsThatHaveNoCounterpartKeepTheirPlace) {
  const Grouped made = grouped(
      [](const auto& in) {
        in[0].mul_(2);
        in[1].mul_(2);
        const at::Tensor sum = in[0].sum();
        in[0].mul_(2);
        in[1].mul_(2);
        return std::vector<at::Tensor>{sum};
      },
      tensors(2));
  EXPECT_THAT(made.words(), ElementsAre("_foreach_mul_.Scalar 2", "_foreach_mul_.Scalar 2"));
  expect_in_order(made);
}

TEST(DeviceGroupingTest, ResultsOfGroupsTakeSoMuchMemoryAndNoMore) {
  // results of 1 MB each: a fifth one begins another stretch
  std::vector<at::Tensor> in;
  for (int i = 0; i < 10; ++i) in.push_back(at::ones({262'144}));
  const Grouped made = grouped(
      [](const auto& given) {
        std::vector<at::Tensor> roots;
        for (const at::Tensor& tensor : given) roots.push_back(tensor.sqrt());
        return roots;
      },
      in);
  EXPECT_THAT(made.words(),
              ElementsAre("_foreach_sqrt. 4", "_foreach_sqrt. 4", "_foreach_sqrt. 2"));
}

TEST(DeviceGroupingTest, AnOperatorThatDisagreesIsNotUsed) {
  const StepBody body = [](const auto& in) {
    for (const at::Tensor& tensor : in) tensor.div_(3.0);
    return std::vector<at::Tensor>{};
  };
  const auto first = grouped(body, tensors(3));
  ASSERT_THAT(first.groups, SizeIs(1));
  EXPECT_EQ(first.groups[0].by->name, "aten::_foreach_div_");
  const auto second = grouped(body, tensors(3), [](const ForeachOperator& by, trace::Index) {
    return by.name != "aten::_foreach_div_";
  });
  ASSERT_THAT(second.groups, SizeIs(1));
  EXPECT_EQ(second.groups[0].by->name, "aten::_foreach_mul_");
  EXPECT_EQ(second.groups[0].by->arguments[1].kind, ForeachArgument::Kind::kReciprocal);
  const auto none =
      grouped(body, tensors(3), [](const ForeachOperator&, trace::Index) { return false; });
  EXPECT_THAT(none.groups, IsEmpty());
}

TEST(DeviceGroupingTest, AProductIsNotDoneByAReciprocal) {
  // both by `_foreach_mul_`, and by the same number as it was recorded
  const auto made = grouped(
      [](const auto& in) {
        in[0].mul_(2.0);
        in[1].div_(2.0);
        in[2].mul_(2.0);
        in[3].div_(2.0);
        return std::vector<at::Tensor>{};
      },
      tensors(4),
      [](const ForeachOperator& by, trace::Index) { return by.name != "aten::_foreach_div_"; });
  ASSERT_THAT(made.groups, SizeIs(2));
  EXPECT_THAT(made.groups[0].ops, ElementsAre(0, 2));
  EXPECT_THAT(made.groups[1].ops, ElementsAre(1, 3));
}

TEST(DeviceGroupingTest, AWiderNumberIsNoNumberToATensorWithoutDimensions) {
  const StepBody body = [](const auto& in) {
    for (const at::Tensor& tensor : in)
      tensor.mul_(at::detail::scalar_tensor_static(0.5, at::kDouble, at::kCPU));
    return std::vector<at::Tensor>{};
  };
  EXPECT_THAT(grouped(body, {at::full({}, 1.0F), at::full({}, 2.0F)}).groups, IsEmpty());
  EXPECT_THAT(grouped(body, {at::ones({3}), at::ones({3})}).groups, SizeIs(1));
}

TEST(DeviceGroupingTest, TensorsThatOverlapThemselvesStayAsTheyAre) {
  const auto made = grouped(
      [](const auto& in) {
        std::vector<at::Tensor> roots;
        for (const at::Tensor& tensor : in) {
          roots.push_back(tensor.as_strided({3, 3}, {2, 2}).sqrt());
        }
        return roots;
      },
      {at::ones({9}), at::ones({9})});
  EXPECT_THAT(made.groups, IsEmpty());
}

TEST(DeviceGroupingTest, OpsThatAreToBeLeftAloneAre) {
  const StepBody body = [](const auto& in) {
    for (const at::Tensor& tensor : in) tensor.mul_(3.0);
    return std::vector<at::Tensor>{};
  };
  const auto made = grouped(body, tensors(4), always, {1});
  EXPECT_THAT(made.words(), ElementsAre("_foreach_mul_.Scalar 3"));
  EXPECT_THAT(made.groups[0].ops, ElementsAre(0, 2, 3));
}

TEST(DeviceGroupingTest, PointwiseOpsWithoutACounterpartAreNoBarrier) {
  const auto made = grouped(
      [](const auto& in) {
        for (const at::Tensor& tensor : in) tensor.mul_(3.0).atan_().mul_(2.0);
        return std::vector<at::Tensor>{};
      },
      tensors(3));
  EXPECT_THAT(made.words(), ElementsAre("_foreach_mul_.Scalar 3", "_foreach_mul_.Scalar 3"));
  EXPECT_THAT(made.segments[0].ops, SizeIs(9));
  expect_in_order(made);
}

TEST(DeviceGroupingTest, DrawsKeepTheirOrder) {
  const auto made = grouped(
      [](const auto& in) {
        for (const at::Tensor& tensor : in) tensor.mul_(3.0).bernoulli_(0.5).mul_(2.0);
        return std::vector<at::Tensor>{};
      },
      tensors(3));
  EXPECT_THAT(made.groups, IsEmpty());
}

TEST(DeviceGroupingTest, AFactorOnTheDeviceIsSharedByAll) {
  const auto made = grouped(
      [](const auto& in) {
        for (int i = 0; i < 3; ++i) in[i].mul_(in[3]);
        return std::vector<at::Tensor>{};
      },
      {at::ones({4}), at::ones({5}), at::ones({2, 3}), at::full({}, 0.5)});
  EXPECT_THAT(made.words(), ElementsAre("_foreach_mul_.Tensor 3"));
}

TEST(DeviceGroupingTest, ArgumentsThatTheOperatorDoesNotTakeHaveTheirDefault) {
  const auto made = grouped(
      [](const auto& in) {
        in[0].add_(1.0, 2.0);
        in[1].add_(1.0, 2.0);
        return std::vector<at::Tensor>{};
      },
      tensors(2));
  EXPECT_THAT(made.groups, IsEmpty());
}

TEST(DeviceGroupingTest, TheLargerMomentIsKeptInItsPlace) {
  const auto made = grouped(
      [](std::vector<at::Tensor> in) {
        for (int i = 0; i < 2; ++i) at::maximum_out(in[2 + i], in[2 + i], in[i]);
        for (int i = 0; i < 2; ++i) at::maximum_out(in[4 + i], in[2 + i], in[i]);
        return std::vector<at::Tensor>{};
      },
      {at::ones({4}), at::ones({5}), at::ones({4}), at::ones({5}), at::ones({4}), at::ones({5})});
  EXPECT_THAT(made.words(), ElementsAre("_foreach_maximum_.List 2"));
}

}  // namespace
}  // namespace steptape::tests
