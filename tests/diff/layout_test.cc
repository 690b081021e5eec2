#include "diff/layout.h"

#include <gmock/gmock.h>

#include "tests/trace/samples.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LayoutTest : public testing::Test {
 protected:
  std::vector<std::string> differences() const {
    std::vector<std::string> texts;
    for (const LayoutDifference& difference : layout_differences(a, b)) {
      texts.push_back(difference.text());
    }
    return texts;
  }

  trace::Recording a = test::train_recording();
  trace::Recording b = a;
  trace::OptimizerLayout& layout = b.optimizers[0];
  trace::ParameterGroup& group = layout.groups[0];
};

TEST_F(LayoutTest, EqualLayoutsDoNotDiffer) { EXPECT_THAT(differences(), IsEmpty()); }

TEST_F(LayoutTest, StepCountsMayMove) {
  layout.state[1].value = {std::int64_t{8}};
  EXPECT_THAT(differences(), IsEmpty());
}

TEST_F(LayoutTest, AParameterInAnotherGroupIsNamed) {
  layout.groups.insert(layout.groups.begin(), {group.hyperparameters, {}});
  EXPECT_THAT(differences(), ElementsAre("model.fc1.weight: optimizer.param_groups[0] → "
                                         "optimizer.param_groups[1]"));
}

TEST_F(LayoutTest, AParameterOfOneSideIsNamed) {
  group.parameters = {"model.fc1.bias"};
  EXPECT_THAT(differences(), ElementsAre("model.fc1.weight: optimizer.param_groups[0] → absent",
                                         "model.fc1.bias: absent → optimizer.param_groups[0]"));
}

TEST_F(LayoutTest, AnotherOrderIsNamedOnce) {
  a.optimizers[0].groups[0].parameters = {"a", "b", "c"};
  group.parameters = {"a", "c", "b"};
  EXPECT_THAT(differences(), ElementsAre("optimizer.param_groups[0].params[1]: b → c"));
}

TEST_F(LayoutTest, AnEmptyGroupOfOneSideIsNamed) {
  layout.groups.emplace_back();
  EXPECT_THAT(differences(), ElementsAre("optimizer.param_groups[1]: absent → a group"));
}

TEST_F(LayoutTest, HyperparametersDifferByTheirBits) {
  group.hyperparameters[0].value = {trace::Real{0.10000000000000002}};
  EXPECT_THAT(differences(),
              ElementsAre("optimizer.param_groups[0].lr: 0.1 → 0.10000000000000002"));
}

TEST_F(LayoutTest, HyperparametersDifferByTheirType) {
  group.hyperparameters[1].value = {std::int64_t{0}};
  EXPECT_THAT(differences(), ElementsAre("optimizer.param_groups[0].nesterov: false → 0"));
}

TEST_F(LayoutTest, AHyperparameterOfOneSideIsNamed) {
  group.hyperparameters[1].name = "maximize";
  EXPECT_THAT(differences(), ElementsAre("optimizer.param_groups[0].nesterov: false → absent",
                                         "optimizer.param_groups[0].maximize: absent → false"));
}

TEST_F(LayoutTest, StateOfOneSideIsNamed) {
  layout.state[0].key = "exp_avg";
  EXPECT_THAT(differences(),
              ElementsAre("optimizer.state[model.fc1.weight].momentum_buffer: float32 [2, 2] → "
                          "absent",
                          "optimizer.state[model.fc1.weight].exp_avg: absent → float32 [2, 2]"));
}

TEST_F(LayoutTest, AnotherShapeOrDtypeIsNamed) {
  b.tensors[5].sizes = {4, 1};
  EXPECT_THAT(differences(), ElementsAre("optimizer.state[model.fc1.weight].momentum_buffer: "
                                         "float32 [2, 2] → float32 [4, 1]"));
  b.tensors[5] = a.tensors[5];
  b.tensors[5].dtype = trace::DType::kFloat16;
  EXPECT_THAT(differences(), ElementsAre("optimizer.state[model.fc1.weight].momentum_buffer: "
                                         "float32 [2, 2] → float16 [2, 2]"));
}

TEST_F(LayoutTest, StateThatBecomesANumberIsNamed) {
  layout.state[0].value = {std::int64_t{3}};
  EXPECT_THAT(differences(),
              ElementsAre("optimizer.state[model.fc1.weight].momentum_buffer: float32 [2, 2] → 3"));
}

TEST_F(LayoutTest, AnOptimizerOfOneSideOrAnotherTypeIsNamed) {
  layout.type = "torch::optim::Adam";
  EXPECT_THAT(differences(), ElementsAre("optimizer.type: torch::optim::SGD → torch::optim::Adam"));
  layout.path = "other";
  EXPECT_THAT(differences(), ElementsAre("optimizer: torch::optim::SGD → absent",
                                         "other: absent → torch::optim::Adam"));
}

}  // namespace
}  // namespace steptape::diff
