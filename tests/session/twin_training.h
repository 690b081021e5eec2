#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/session/training.h"

namespace steptape::tests {

/// A taped training in replay (batch norm, dropout, SGD with momentum) beside its eager twin:
/// whatever a test changes in both, they stay equal, and the verdict names what changed.
class TwinTraining : public ::testing::Test {
 protected:
  TwinTraining() {
    session_.track("model", taped_.model).track("optimizer", taped_.optimizer);
    for (const Batch& batch : make_batches(7)) step_both(batch);
    EXPECT_GE(train_.stats().replayed, 1U) << train_.explain();
  }

  void step_both() { step_both(make_batches(1)[0]); }

  void step_both(const Batch& batch) {
    step_both(batch, {batch.images.clone(), batch.labels.clone()});
  }

  /// Each has a batch of its own, of the same values.
  void step_both(const Batch& of_eager, const Batch& of_taped) {
    torch::manual_seed(++seed_);
    const at::Tensor expected = eager_.step(of_eager.images, of_eager.labels);
    torch::manual_seed(seed_);
    EXPECT_TRUE(same_bits(expected, train_(of_taped.images, of_taped.labels)));
    EXPECT_TRUE(all_same_bits(visible_state(*eager_.model), visible_state(*taped_.model)));
  }

  template <typename Change>
  void both(Change change) {
    change(eager_);
    change(taped_);
  }

  /// One step in which a guard must fail. Returns its verdict.
  Verdict mismatch() {
    const std::uint64_t replayed = train_.stats().replayed;
    step_both();
    EXPECT_EQ(train_.stats().replayed, replayed) << train_.explain();
    return train_.stats().last_verdict;
  }

  void expect_replay() {
    const std::uint64_t replayed = train_.stats().replayed;
    step_both();
    EXPECT_EQ(train_.stats().replayed, replayed + 1) << train_.explain();
  }

  static torch::optim::SGDOptions& options_of(SgdTraining& training) {
    return static_cast<torch::optim::SGDOptions&>(training.optimizer.param_groups()[0].options());
  }

  SgdTraining eager_{{true, 0.25}, torch::optim::SGDOptions(0.1).momentum(0.9)};
  SgdTraining taped_{{true, 0.25}, torch::optim::SGDOptions(0.1).momentum(0.9)};
  Session session_{quiet()};
  std::uint64_t seed_ = 100;
  Step<at::Tensor(at::Tensor, at::Tensor)> train_ = session_.wrap(
      "train",
      [this](at::Tensor images, at::Tensor labels) { return taped_.step(images, labels); });
};

}  // namespace steptape::tests
