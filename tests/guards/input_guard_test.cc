#include "guards/input_guard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "guards/overlap_guard.h"
#include "trace/compare/guard_list.h"

namespace steptape::guards {
namespace {

/// A recording with two float inputs of 2×4 in one buffer, 8 elements apart, and a number.
class InputGuardTest : public testing::Test {
 protected:
  InputGuardTest() {
    trace::Buffer buffer;
    buffer.bytes = 16 * sizeof(float);
    buffer.role = trace::Role::kInput;
    buffer.path = "inputs[0]";
    recording_.buffers = {buffer};
    for (const std::int64_t offset : {0, 8}) {
      trace::Tensor tensor;
      tensor.buffer = 0;
      tensor.sizes = {2, 4};
      tensor.strides = {4, 1};
      tensor.offset = offset;
      recording_.tensors.push_back(tensor);
    }
    recording_.inputs = {{"inputs[0]", {trace::TensorRef{0}}, false, {}},
                         {"inputs[1]", {trace::TensorRef{1}}, false, {}},
                         {"inputs[2]", {std::int64_t{7}}, false, {}}};
  }

  std::string mismatch(const at::Tensor& a, const at::Tensor& b, std::int64_t fact = 7) {
    const std::vector<live::Argument> arguments = {
        {a, {}, true}, {b, {}, true}, {{}, {fact}, false}};
    memory_.assign(1, nullptr);
    const InputGuard guard(recording_, {0});
    const Verdict verdict = guard.check(arguments);
    return verdict ? guard.place(arguments, memory_).path : verdict.path;
  }

  trace::Recording recording_;
  std::vector<void*> memory_;
  const at::Tensor series_ = at::rand({16});
  const at::Tensor a_ = series_.narrow(0, 0, 8).view({2, 4});
  const at::Tensor b_ = series_.narrow(0, 8, 8).view({2, 4});
};

TEST_F(InputGuardTest, HoldsForWhatWasRecordedAndFindsItsMemory) {
  EXPECT_EQ(mismatch(a_, b_), "");
  EXPECT_EQ(memory_[0], series_.data_ptr());
}

TEST_F(InputGuardTest, HoldsElsewhereInALargerStorage) {
  const at::Tensor large = at::rand({64});
  EXPECT_EQ(mismatch(large.narrow(0, 16, 8).view({2, 4}), large.narrow(0, 24, 8).view({2, 4})), "");
  EXPECT_EQ(memory_[0], large.data_ptr<float>() + 16);
}

TEST_F(InputGuardTest, NamesInputsThatAreNoLongerNeighbours) {
  EXPECT_EQ(mismatch(a_, b_.clone()), "inputs[1].data_ptr");
}

TEST_F(InputGuardTest, NamesAnotherNumber) { EXPECT_EQ(mismatch(a_, b_, 8), "inputs[2]"); }

TEST_F(InputGuardTest, NamesKindsThatNoPlanHolds) {
  EXPECT_EQ(mismatch(a_.to_sparse(), b_), "inputs[0]");
  EXPECT_EQ(mismatch(at::empty({2, 4}, at::kMeta), b_), "inputs[0]");
  EXPECT_EQ(mismatch(at::Tensor(), b_), "inputs[0]");
}

TEST_F(InputGuardTest, NamesConjugatedInputs) {
  EXPECT_EQ(mismatch(at::rand({2, 4}, at::kComplexFloat).conj(), b_), "inputs[0].dtype");
}

TEST_F(InputGuardTest, WhatFailsStandsInTheListOfGuardsInTheSameWords) {
  const auto requiring_grad = [](const at::Tensor& tensor) {
    return tensor.detach().clone().requires_grad_();
  };
  const live::Argument second{b_, {}, true};
  const live::Argument seven{{}, {std::int64_t{7}}, false};
  const std::vector<std::vector<live::Argument>> calls = {
      {{a_, {}, true}},
      {{at::Tensor(), {}, true}, second, seven},
      {{{}, {std::int64_t{7}}, false}, second, seven},
      {{a_.to_sparse(), {}, true}, second, seven},
      {{a_.to(at::kDouble), {}, true}, second, seven},
      {{a_.flatten(), {}, true}, second, seven},
      {{a_.narrow(0, 0, 1), {}, true}, second, seven},
      {{at::rand({4, 2}).t(), {}, true}, second, seven},
      {{a_._neg_view(), {}, true}, second, seven},
      {{requiring_grad(a_), {}, true}, second, seven},
      {{a_, {}, true}, {b_.clone(), {}, true}, seven},
      {{series_.narrow(0, 1, 8).view({2, 4}), {}, true}, second, seven},
      {{a_, {}, true}, second, {{}, {std::int64_t{8}}, false}}};
  const std::vector<trace::Guard> guards = trace::guards_of(recording_);
  for (const std::vector<live::Argument>& arguments : calls) {
    memory_.assign(1, nullptr);
    const InputGuard guard(recording_, {0});
    Verdict verdict = guard.check(arguments);
    if (verdict) verdict = guard.place(arguments, memory_);
    ASSERT_FALSE(verdict);
    EXPECT_TRUE(std::ranges::any_of(guards, [&](const trace::Guard& guard) {
      return guard.path == verdict.path && guard.expected == verdict.expected;
    })) << verdict.text();
  }
}

TEST_F(InputGuardTest, WrittenInputsMustNotOverlapOthers) {
  trace::Recording recording = recording_;
  recording.buffers.push_back(recording.buffers[0]);
  recording.tensors[1].buffer = 1;
  recording.tensors[1].offset = 0;
  recording.buffers[1].path = "inputs[1]";
  const InputGuard guard(recording, {0, 1});
  const OverlapGuard overlap(recording, {0, 1}, {0});
  const auto check = [&](const at::Tensor& a, const at::Tensor& b) {
    std::vector<void*> memory(2, nullptr);
    const std::vector<live::Argument> arguments = {
        {a, {}, true}, {b, {}, true}, {{}, {std::int64_t{7}}, false}};
    EXPECT_TRUE(guard.check(arguments));
    EXPECT_TRUE(guard.place(arguments, memory));
    return overlap.check(memory, 0).path;
  };
  EXPECT_EQ(check(at::rand({2, 4}), at::rand({2, 4})), "");
  EXPECT_EQ(check(a_, a_.alias()), "inputs[1]");
}

}  // namespace
}  // namespace steptape::guards
