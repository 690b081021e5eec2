#include "guards/module_guard.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <optional>

namespace steptape::guards {
namespace {

/// What may be registered with it is open to the tests.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", torch::nn::Linear(4, 3));
    drop = register_module("drop", torch::nn::Dropout(0.5));
    scale = register_parameter("scale", at::ones({3}));
    mean = register_buffer("mean", at::zeros({3}));
  }
  torch::OrderedDict<std::string, at::Tensor>& parameters_of_it() { return parameters_; }

  torch::nn::Linear fc{nullptr};
  torch::nn::Dropout drop{nullptr};
  at::Tensor scale, mean;
};
TORCH_MODULE(Net);

class ModuleGuardTest : public testing::Test {
 protected:
  ModuleGuardTest() {
    objects_.track("net", net_.ptr());
    guard_.emplace(objects_.snapshot());
  }

  /// The guard must fail, by `kind`; in which words.
  std::string found(GuardKind kind) const {
    const Verdict verdict = guard_->check();
    EXPECT_EQ(verdict.kind, kind) << verdict.text();
    return verdict.text();
  }

  Net net_;
  live::Objects objects_;
  std::optional<ModuleGuard> guard_;
};

TEST_F(ModuleGuardTest, HoldsWhileValuesAloneChange) {
  {
    const at::NoGradGuard no_grad;
    net_->fc->weight.zero_();
    net_->mean.add_(1);
  }
  net_->scale.mutable_grad() = at::ones({3});
  EXPECT_TRUE(guard_->check());
}

TEST_F(ModuleGuardTest, NamesATrainingFlagBelowTheRoot) {
  net_->drop->eval();
  EXPECT_EQ(found(GuardKind::kTraining), "net.drop.training: true → false");
  net_->drop->train();
  EXPECT_TRUE(guard_->check());
}

TEST_F(ModuleGuardTest, NamesAnOption) {
  net_->drop->options.p(0.25);
  EXPECT_EQ(found(GuardKind::kModuleOption), "net.drop.options.p: 0.5 → 0.25");
  net_->drop->options.p(0.5);
  EXPECT_TRUE(guard_->check());
}

TEST_F(ModuleGuardTest, AParameterIsTheObjectThatIsRegistered) {
  at::Tensor& scale = net_->parameters_of_it()["scale"];
  scale = at::ones({3});
  EXPECT_EQ(found(GuardKind::kParameters),
            "net.scale: the parameter registered when it was recorded → another");
  scale = net_->scale;
  EXPECT_TRUE(guard_->check());
}

TEST_F(ModuleGuardTest, NamesWhatIsMissingAndWhatIsNew) {
  net_->parameters_of_it().erase("scale");
  EXPECT_EQ(found(GuardKind::kParameters),
            "net.scale: the parameter registered when it was recorded → none");
  net_->parameters_of_it().insert("scale", net_->scale);
  EXPECT_TRUE(guard_->check());
  net_->register_buffer("variance", at::ones({3}));
  EXPECT_EQ(found(GuardKind::kModuleBuffers), "net.variance: none → a module buffer");
}

TEST_F(ModuleGuardTest, AModuleAtTheAddressOfADeadOneIsAnother) {
  net_->drop = net_->replace_module("drop", torch::nn::Dropout(0.5));
  EXPECT_EQ(found(GuardKind::kSubModules),
            "net.drop: the sub-module registered when it was recorded → another");
  // the allocator tends to give the same address again
  for (int i = 0; i < 16; ++i) {
    net_->drop = nullptr;
    net_->drop = net_->replace_module("drop", torch::nn::Dropout(0.5));
    EXPECT_FALSE(guard_->check());
  }
}

TEST_F(ModuleGuardTest, TheOrderOfWhatIsRegisteredCounts) {
  const auto drop = net_->drop.ptr();
  net_->unregister_module("drop");
  net_->register_module("head", torch::nn::Linear(1, 1));
  net_->register_module("drop", drop);
  EXPECT_EQ(found(GuardKind::kSubModules), "net.head: none → a sub-module");
  net_->unregister_module("head");
  EXPECT_TRUE(guard_->check());
  const auto fc = net_->fc.ptr();
  net_->unregister_module("fc");
  net_->register_module("fc", fc);
  EXPECT_EQ(found(GuardKind::kSubModules),
            "net (sub-modules): in the order of the recording → in another order");
}

}  // namespace
}  // namespace steptape::guards
