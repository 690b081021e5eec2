#include "guards/optimizer_guard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <optional>

namespace steptape::guards {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamParamState;

/// Adam over two tensors, with state after one step; the recording follows the learning rate of the
/// only group and the step counter of the first tensor, and advances that by 1.
class OptimizerGuardTest : public testing::Test {
 protected:
  OptimizerGuardTest() {
    for (at::Tensor& tensor : tensors_) tensor.mutable_grad() = at::ones({3});
    adam_.step();
    objects_.track("adam", adam_);
    snapshot_ = objects_.snapshot();
    recording_.optimizers = snapshot_.optimizers;
    recording_.optimizers[0].has_formulas = true;
    recording_.leaves = {
        {trace::LeafKind::kHyperparameter, "adam.param_groups[0].lr"},
        {trace::LeafKind::kStateNumber, "adam.state[adam.param_groups[0].params[0]].step"}};
    recording_.advances = {{"adam.state[adam.param_groups[0].params[0]].step", 1}};
    make();
  }

  void make() { guard_.emplace(recording_, objects_, snapshot_); }

  Verdict check() {
    entry_ = {};
    entry_.leaves.assign(recording_.leaves.size(), -1);
    return guard_->check(entry_);
  }
  /// The guard must fail, by `kind`; in which words.
  std::string found(GuardKind kind) {
    const Verdict verdict = check();
    EXPECT_EQ(verdict.kind, kind) << verdict.text();
    return verdict.text();
  }

  AdamOptions& options() { return static_cast<AdamOptions&>(adam_.param_groups()[0].options()); }
  std::unique_ptr<torch::optim::OptimizerParamState>& state_of(std::size_t k) {
    return adam_.state()[tensors_[k].unsafeGetTensorImpl()];
  }
  AdamParamState& adam_state_of(std::size_t k) {
    return static_cast<AdamParamState&>(*state_of(k));
  }

  std::vector<at::Tensor> tensors_ = {at::rand({3}).requires_grad_(),
                                      at::rand({3}).requires_grad_()};
  torch::optim::Adam adam_{tensors_, AdamOptions(0.5)};
  live::Objects objects_;
  live::Snapshot snapshot_;
  trace::Recording recording_;
  Entry entry_;
  std::optional<OptimizerGuard> guard_;
};

TEST_F(OptimizerGuardTest, ReadsTheNumbersThatFormulasStartFrom) {
  EXPECT_TRUE(check());
  EXPECT_EQ(entry_.leaves, (std::vector<double>{0.5, 1}));
  options().lr(0.25);
  adam_state_of(0).step(7);
  EXPECT_TRUE(check());
  EXPECT_EQ(entry_.leaves, (std::vector<double>{0.25, 7}));
}

TEST_F(OptimizerGuardTest, ANumberThatMovesIsUnseenUntilThePlanWasProvedThere) {
  EXPECT_TRUE(check());
  EXPECT_FALSE(entry_.has_unseen_number);
  options().lr(0.25);
  EXPECT_TRUE(check());
  EXPECT_TRUE(entry_.has_unseen_number);
  OptimizerGuard::for_each_numbers(*guard_, [](VaryingNumbers& numbers) { numbers.settle(); });
  EXPECT_TRUE(check());
  EXPECT_FALSE(entry_.has_unseen_number);
}

TEST_F(OptimizerGuardTest, APinnedNumberHoldsForItsProvedValuesAlone) {
  options().lr(0.25);
  EXPECT_TRUE(check());
  OptimizerGuard::for_each_numbers(*guard_, [](VaryingNumbers& numbers) {
    EXPECT_TRUE(numbers.pin());
    EXPECT_TRUE(numbers.is_pinned("adam.param_groups[0].lr"));
    EXPECT_FALSE(numbers.is_pinned("adam.param_groups[0].eps"));
  });
  EXPECT_EQ(check().path, "adam.param_groups[0].lr");
  options().lr(0.5);
  EXPECT_TRUE(check());
}

TEST_F(OptimizerGuardTest, WithoutFormulasEachNumberIsTheRecordedOne) {
  recording_.optimizers[0].has_formulas = false;
  make();
  EXPECT_TRUE(check());
  options().eps(1);
  EXPECT_EQ(found(GuardKind::kHyperparameter), "adam.param_groups[0].eps: 1e-08 → 1.0");
}

TEST_F(OptimizerGuardTest, NumbersAreReadFromTheOptionsThatAreThere) {
  auto others = AdamOptions(0.125);
  adam_.param_groups()[0].set_options(std::make_unique<AdamOptions>(others));
  EXPECT_TRUE(check());
  EXPECT_EQ(entry_.leaves[0], 0.125);
}

TEST_F(OptimizerGuardTest, NamesGroupsAndTheirParameters) {
  adam_.param_groups()[0].params()[1] = tensors_[1].alias();
  EXPECT_EQ(found(GuardKind::kParameterGroups),
            "adam.param_groups[0].params: the parameters it held when it was recorded → others");
  adam_.param_groups()[0].params()[1] = tensors_[1];
  EXPECT_TRUE(check());
  adam_.add_param_group(torch::optim::OptimizerParamGroup({at::rand({2}).requires_grad_()}));
  EXPECT_EQ(found(GuardKind::kParameterGroups), "adam.param_groups.size: 1 → 2");
}

TEST_F(OptimizerGuardTest, NamesAStateThatIsGoneOrNew) {
  auto state = std::move(state_of(1));
  adam_.state().erase(tensors_[1].unsafeGetTensorImpl());
  EXPECT_EQ(found(GuardKind::kOptimizerState),
            "adam.state[adam.param_groups[0].params[1]]: there → gone");
  state_of(1) = std::move(state);
  EXPECT_TRUE(check());
  const at::Tensor other = at::rand({3});
  adam_.state()[other.unsafeGetTensorImpl()] = std::make_unique<AdamParamState>();
  EXPECT_EQ(found(GuardKind::kOptimizerState),
            "adam.state[a parameter of no group]: none → a state");
}

TEST_F(OptimizerGuardTest, AStateIsTheTensorsInIt) {
  adam_state_of(1).exp_avg(adam_state_of(1).exp_avg().clone());
  EXPECT_EQ(
      found(GuardKind::kOptimizerState),
      "adam.state[adam.param_groups[0].params[1]]: the tensors it held when it was recorded → "
      "others");
}

TEST_F(OptimizerGuardTest, AnotherStateObjectWithTheSameTensorsIsReadWhereItIs) {
  auto other = state_of(0)->clone();
  static_cast<AdamParamState&>(*other).step(41);
  state_of(0) = std::move(other);
  EXPECT_TRUE(check());
  EXPECT_EQ(entry_.leaves[1], 41);
  guard_->advance();
  EXPECT_EQ(adam_state_of(0).step(), 42);
}

TEST_F(OptimizerGuardTest, AdvancesTheCountersOfTheRecordingAlone) {
  EXPECT_TRUE(check());
  guard_->advance();
  EXPECT_EQ(adam_state_of(0).step(), 2);
  EXPECT_EQ(adam_state_of(1).step(), 1);
  EXPECT_EQ(guard_->counters(), (std::vector<std::int64_t>{2}));
}

}  // namespace
}  // namespace steptape::guards
