#include "live/objects.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "steptape/error.h"

namespace steptape::live {
namespace {

using testing::ElementsAre;

std::vector<std::string> paths_of(const Snapshot& snapshot) {
  std::vector<std::string> paths;
  for (const TensorAt& at : snapshot.tensors) paths.push_back(at.path);
  return paths;
}

class ObjectsTest : public testing::Test {
 protected:
  void train(torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    linear->forward(at::ones({2, 3})).sum().backward();
    optimizer.step();
  }

  Objects objects;
  torch::nn::Linear linear{3, 2};
};

TEST_F(ObjectsTest, StandsInAFixedOrder) {
  torch::nn::Sequential model(linear, torch::nn::BatchNorm1d(2));
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto ema = at::zeros({4});
  objects.track("optimizer", sgd);
  objects.track("ema", ema);
  objects.track("model", *model);
  train(sgd);
  EXPECT_THAT(
      paths_of(objects.snapshot()),
      ElementsAre("model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias",
                  "model.1.running_mean", "model.1.running_var", "model.1.num_batches_tracked",
                  "optimizer.state[model.0.weight].momentum_buffer",
                  "optimizer.state[model.0.bias].momentum_buffer", "ema", "model.0.weight.grad",
                  "model.0.bias.grad", "model.1.weight.grad", "model.1.bias.grad"));
}

TEST_F(ObjectsTest, AParameterOfTwoModulesStandsOnce) {
  torch::nn::Sequential model(linear, linear);
  objects.track("model", *model);
  EXPECT_THAT(
      paths_of(objects.snapshot()),
      ElementsAre("model.0.weight", "model.0.bias", "model.0.weight.grad", "model.0.bias.grad"));
}

TEST_F(ObjectsTest, OtherPathsToATensorOrModuleAreItsAliases) {
  torch::nn::ModuleList inner(linear);
  torch::nn::ModuleList model(inner, linear, inner);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  objects.track("model", *model);
  objects.track("weight", linear->weight);
  objects.track("optimizer", sgd);
  const auto snapshot = objects.snapshot();
  EXPECT_EQ(snapshot.modules.at(1).path, "model.0");
  EXPECT_THAT(snapshot.modules.at(1).aliases, ElementsAre("model.2"));
  EXPECT_EQ(snapshot.modules.at(2).path, "model.0.0");
  EXPECT_THAT(snapshot.modules.at(2).aliases, ElementsAre("model.1", "model.2.0"));
  EXPECT_EQ(snapshot.tensors.at(0).path, "model.0.0.weight");
  EXPECT_THAT(snapshot.tensors.at(0).aliases,
              ElementsAre("model.1.weight", "model.2.0.weight", "weight"));
}

TEST_F(ObjectsTest, NamesThatMeanSomethingInPathsStandInQuotes) {
  struct Odd : torch::nn::Module {};
  Odd model;
  model.register_module("a@2", linear.ptr());
  model.register_buffer("b[0]", at::ones({2}));
  objects.track("model", model);
  EXPECT_THAT(paths_of(objects.snapshot()),
              ElementsAre("model.\"a@2\".weight", "model.\"a@2\".bias", "model.\"b[0]\"",
                          "model.\"a@2\".weight.grad", "model.\"a@2\".bias.grad"));
}

TEST_F(ObjectsTest, AParameterNoModuleLeadsToIsTheOptimizers) {
  auto loose = at::zeros({2}).requires_grad_();
  torch::optim::SGD sgd({linear->weight, loose}, torch::optim::SGDOptions(0.1));
  objects.track("model", *linear);
  objects.track("optimizer", sgd);
  const auto snapshot = objects.snapshot();
  EXPECT_THAT(snapshot.optimizers.at(0).groups.at(0).parameters,
              ElementsAre("model.weight", "optimizer.param_groups[0].params[1]"));
  EXPECT_EQ(snapshot.tensors.at(snapshot.find(loose)).role, trace::Role::kParameter);
}

TEST_F(ObjectsTest, ATensorThatAutogradTeachesIsAParameter) {
  const auto taught = at::zeros({2}).requires_grad_(), average = at::zeros({2});
  objects.track("taught", taught);
  objects.track("average", average);
  objects.track("derived", taught * 2);
  EXPECT_THAT(paths_of(objects.snapshot()),
              ElementsAre("taught", "average", "derived", "taught.grad"));
}

/// An optimizer of the program's own.
struct Own : torch::optim::Optimizer {
  struct Options : torch::optim::OptimizerCloneableOptions<Options> {
    double get_lr() const override { return 0.1; }
    void set_lr(double) override {}
  };
  explicit Own(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<Options>()) {}
  at::Tensor step(LossClosure) override { return {}; }
};

TEST_F(ObjectsTest, AnOptimizerOfTheProgramsOwnHasTypeGroupsAndParameters) {
  Own own({linear->weight, linear->bias});
  objects.track("model", *linear);
  objects.track("own", own);
  const auto layout = objects.snapshot().optimizers.at(0);
  EXPECT_THAT(layout.type, testing::HasSubstr("Own"));
  ASSERT_EQ(layout.groups.size(), 1U);
  EXPECT_THAT(layout.groups[0].parameters, ElementsAre("model.weight", "model.bias"));
  EXPECT_THAT(layout.groups[0].hyperparameters, testing::IsEmpty());
}

TEST_F(ObjectsTest, ParametersWithoutStateAreInTheLayout) {
  torch::optim::Adam adam(linear->parameters(), torch::optim::AdamOptions(0.1));
  objects.track("model", *linear);
  objects.track("optimizer", adam);
  const auto layout = objects.snapshot().optimizers.at(0);
  EXPECT_THAT(layout.groups.at(0).parameters, ElementsAre("model.weight", "model.bias"));
  EXPECT_THAT(layout.state, testing::IsEmpty());
}

TEST_F(ObjectsTest, FindsByTensorImpl) {
  objects.track("model", *linear);
  const auto snapshot = objects.snapshot();
  EXPECT_EQ(snapshot.find(linear->bias), 1);
  EXPECT_EQ(snapshot.find(linear->bias.detach()), -1);
  EXPECT_EQ(snapshot.find(at::Tensor()), -1);
}

TEST_F(ObjectsTest, HoldsHyperparametersAndState) {
  torch::optim::Adam adam(linear->parameters(), torch::optim::AdamOptions(0.1));
  objects.track("model", *linear);
  objects.track("optimizer", adam);
  train(adam);
  const auto layout = objects.snapshot().optimizers.at(0);
  EXPECT_EQ(layout.type, "torch::optim::Adam");
  const auto& values = layout.groups.at(0).hyperparameters;
  EXPECT_EQ(values.at(0), (trace::NamedValue{"lr", {trace::Real{0.1}}}));
  EXPECT_EQ(values.at(1).name, "betas");
  EXPECT_EQ(std::get<trace::List>(values[1].value.data).at(1), trace::Value{trace::Real{0.999}});
  ASSERT_EQ(layout.state.size(), 6u);
  EXPECT_EQ(layout.state[0], (trace::OptimizerStateEntry{"model.weight", "step", {1L}}));
  EXPECT_EQ(layout.state[1].key, "exp_avg");
}

TEST_F(ObjectsTest, KnowsTheStateOfLbfgs) {
  torch::optim::LBFGS lbfgs(linear->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(3));
  objects.track("model", *linear);
  objects.track("optimizer", lbfgs);
  lbfgs.step([&] {
    lbfgs.zero_grad();
    auto loss = linear->forward(at::ones({2, 3})).pow(2).sum();
    loss.backward();
    return loss;
  });
  const auto paths = paths_of(objects.snapshot());
  EXPECT_THAT(paths, testing::Contains("optimizer.state[model.weight].prev_flat_grad"));
  EXPECT_THAT(paths, testing::Contains("optimizer.state[model.weight].old_dirs[0]"));
}

struct Strange : torch::optim::Optimizer {
  struct Options : torch::optim::OptimizerCloneableOptions<Options> {};
  explicit Strange(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<Options>()) {}
  at::Tensor step(LossClosure) override { return {}; }
};

TEST_F(ObjectsTest, AnUnknownOptimizerHasATypeAndNoHyperparameters) {
  Strange strange(linear->parameters());
  objects.track("optimizer", strange);
  const auto layout = objects.snapshot().optimizers.at(0);
  EXPECT_NE(layout.type.find("Strange"), std::string::npos);
  EXPECT_TRUE(layout.groups.at(0).hyperparameters.empty());
  EXPECT_EQ(layout.groups[0].parameters.size(), 2u);
}

TEST_F(ObjectsTest, NamesMustBeGoodAndNew) {
  objects.track("model", *linear);
  EXPECT_THROW(objects.track("model", at::zeros({1})), Error);
  EXPECT_THROW(objects.track("", at::zeros({1})), Error);
  EXPECT_THROW(objects.track("a.b", at::zeros({1})), Error);
  EXPECT_THROW(objects.track("default", at::detail::createCPUGenerator()), Error);
}

TEST_F(ObjectsTest, NoticesTheDeathOfAModule) {
  auto module = std::make_shared<torch::nn::LinearImpl>(2, 2);
  objects.track("model", module);
  EXPECT_NO_THROW(objects.check_alive());
  module.reset();
  try {
    objects.snapshot();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(std::string(error.what()).find("'model'"), std::string::npos);
  }
}

TEST_F(ObjectsTest, DescribesItself) {
  EXPECT_EQ(objects.text(), "nothing");
  torch::optim::SGD sgd(linear->parameters(), torch::optim::SGDOptions(0.1));
  objects.track("model", *linear);
  objects.track("optimizer", sgd);
  EXPECT_EQ(objects.text(), "model (module), optimizer (torch::optim::SGD)");
}

TEST_F(ObjectsTest, KnowsGeneratorsByPath) {
  auto generator = at::detail::createCPUGenerator();
  objects.track("noise", generator);
  const auto generators = objects.generators();
  ASSERT_EQ(generators.size(), 2u);
  EXPECT_EQ(generators[0].first, "default");
  EXPECT_EQ(generators[1].first, "noise");
  EXPECT_EQ(generators[1].second, generator);
}

}  // namespace
}  // namespace steptape::live
