#include "guards/tracked_guard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "guards/entry.h"
#include "steptape/error.h"

namespace steptape::guards {
namespace {

/// A parameter with a gradient, two views of one memory, and one without a gradient. The plan binds
/// the memory of all, and writes that of the parameter.
class TrackedGuardTest : public testing::Test {
 protected:
  TrackedGuardTest() {
    weight_.mutable_grad() = at::ones({2, 4});
    objects_.track("weight", weight_);
    objects_.track("left", left_);
    objects_.track("right", right_);
    objects_.track("bias", bias_);
    snapshot_ = objects_.snapshot();
    for (const live::TensorAt& each : snapshot_.tensors) {
      recording_.tracked.push_back({each.path, each.role});
      trace::Tracked& tracked = recording_.tracked.back();
      if (!each.tensor.defined()) continue;
      tracked.requires_grad = each.tensor.requires_grad();
      tracked.tensor = static_cast<trace::TensorId>(recording_.tensors.size());
      trace::Tensor tensor;
      tensor.buffer = buffer_of(each.tensor, each.path);
      tensor.sizes = each.tensor.sizes().vec();
      tensor.strides = each.tensor.strides().vec();
      tensor.offset = each.tensor.storage_offset();
      recording_.tensors.push_back(tensor);
    }
    make();
  }

  trace::BufferId buffer_of(const at::Tensor& tensor, const std::string& path) {
    for (trace::BufferId id = 0; id < lies_at_.size(); ++id) {
      if (lies_at_[id] == tensor.storage().data()) return id;
    }
    trace::Buffer buffer;
    buffer.bytes = tensor.storage().nbytes();
    buffer.path = path;
    recording_.buffers.push_back(buffer);
    lies_at_.push_back(tensor.storage().data());
    return static_cast<trace::BufferId>(lies_at_.size() - 1);
  }

  void make() {
    bound_.resize(recording_.buffers.size());
    for (trace::BufferId id = 0; id < bound_.size(); ++id) bound_[id] = id;
    guard_.emplace(recording_, positions_of(recording_, bound_), std::vector<trace::BufferId>{0},
                   snapshot_);
    snapshot_.tensors.clear();  // holds handles
  }

  Verdict check() {
    memory_.assign(bound_.size(), nullptr);
    return guard_->check(memory_);
  }
  /// The guard must fail, by `kind`; in which words.
  std::string found(GuardKind kind) {
    const Verdict verdict = check();
    EXPECT_EQ(verdict.kind, kind) << verdict.text();
    return verdict.text();
  }

  at::Tensor weight_ = at::rand({2, 4}).requires_grad_();
  at::Tensor flat_ = at::rand({16});
  at::Tensor left_ = flat_.narrow(0, 0, 8), right_ = flat_.narrow(0, 8, 8);
  at::Tensor bias_ = at::rand({4}).requires_grad_();
  live::Objects objects_;
  live::Snapshot snapshot_;
  trace::Recording recording_;
  std::vector<trace::BufferId> bound_;
  std::vector<const void*> lies_at_;
  std::vector<void*> memory_;
  std::optional<TrackedGuard> guard_;
};

TEST_F(TrackedGuardTest, HoldsAndFindsTheMemory) {
  EXPECT_TRUE(check());
  ASSERT_EQ(memory_.size(), 4U);
  EXPECT_EQ(memory_[0], weight_.data_ptr());
  EXPECT_EQ(memory_[1], bias_.data_ptr());
  EXPECT_EQ(memory_[2], flat_.data_ptr());
  EXPECT_EQ(memory_[3], weight_.grad().data_ptr());
}

TEST_F(TrackedGuardTest, SaysWhoseMemoryMoved) {
  EXPECT_TRUE(check());
  EXPECT_EQ(guard_->moved(), "");
  const std::uint64_t moves = guard_->moves();
  weight_.set_data(at::rand({2, 4}));
  EXPECT_TRUE(check());
  EXPECT_EQ(memory_[0], weight_.data_ptr());
  EXPECT_EQ(guard_->moved(), "weight");
  EXPECT_GT(guard_->moves(), moves);
  guard_->forget_moves();
  EXPECT_TRUE(check());
  EXPECT_EQ(guard_->moved(), "");
}

TEST_F(TrackedGuardTest, NamesGeometry) {
  const at::Tensor was = weight_.data();
  weight_.set_data(at::rand({2, 4}, at::kDouble));
  EXPECT_EQ(found(GuardKind::kDtype), "weight.dtype: float32 → float64");
  weight_.set_data(at::rand({3, 4}));
  EXPECT_EQ(found(GuardKind::kShape), "weight.size(0): 2 → 3");
  weight_.set_data(at::rand({4, 2}).t());
  EXPECT_EQ(found(GuardKind::kStride), "weight.stride(0): 4 → 1");
  weight_.set_data(at::rand({10}).narrow(0, 1, 8).view({2, 4}));
  EXPECT_EQ(found(GuardKind::kOffset), "weight.storage_offset: 0 → 1");
  weight_.set_data(was);
  EXPECT_TRUE(check());
}

TEST_F(TrackedGuardTest, NamesWhatAutogradGoesBy) {
  weight_.requires_grad_(false);
  EXPECT_EQ(found(GuardKind::kRequiresGrad), "weight.requires_grad: true → false");
  weight_.requires_grad_(true);
  EXPECT_TRUE(check());
  const unsigned hook = weight_.register_hook([](const at::Tensor& g) { return g; });
  EXPECT_EQ(check().kind, GuardKind::kHooks);
  weight_.remove_hook(hook);
}

TEST_F(TrackedGuardTest, AGradientIsThereOrNot) {
  bias_.mutable_grad() = at::ones({4});
  EXPECT_EQ(found(GuardKind::kPresence), "bias.grad: None → defined");
  memory_.assign(bound_.size(), nullptr);
  EXPECT_TRUE(guard_->check_unplaced(memory_));
  bias_.mutable_grad() = at::Tensor();
  weight_.mutable_grad() = at::Tensor();
  EXPECT_EQ(found(GuardKind::kPresence), "weight.grad: defined → None");
}

TEST_F(TrackedGuardTest, TensorsThatSharedMemoryShareIt) {
  right_.set_data(right_.clone());
  EXPECT_EQ(check().path, "right.storage_offset");
  right_.set_data(at::rand({16}).narrow(0, 8, 8));
  EXPECT_EQ(found(GuardKind::kMemory), "right: in one memory with left → in memory of its own");
  const at::Tensor other = at::rand({16});
  left_.set_data(other.narrow(0, 0, 8));
  right_.set_data(other.narrow(0, 8, 8));
  EXPECT_TRUE(check());
  EXPECT_EQ(memory_[2], other.data_ptr());
}

TEST_F(TrackedGuardTest, WhatThePlanWritesHasMemoryOfItsOwn) {
  const at::Tensor lazy = at::_lazy_clone(weight_.detach());
  EXPECT_EQ(found(GuardKind::kMemory), "weight: memory of its own → that of a lazy clone");
}

TEST_F(TrackedGuardTest, KeepsNothingAliveAndNoticesWhatDied) {
  objects_ = live::Objects();
  bias_ = at::Tensor();
  EXPECT_EQ(found(GuardKind::kAlive), "bias: alive → freed");
}

TEST_F(TrackedGuardTest, FindsTensorsByPathAndObject) {
  EXPECT_EQ(guard_->path_of(left_), "left");
  EXPECT_EQ(guard_->path_of(flat_), "");
  EXPECT_TRUE(guard_->tensor(guard_->position_of("bias")).is_same(bias_));
  EXPECT_THROW(guard_->position_of("nothing"), Error);
  EXPECT_TRUE(guard_->tensor(static_cast<std::size_t>(guard_->position_on(2))).is_same(left_));
}

}  // namespace
}  // namespace steptape::guards
