#include "trace/compare/compare.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/trace/samples.h"

namespace steptape::trace {
namespace {

/// One thing changed, and how the change is told.
struct Change {
  std::string name;
  std::function<void(Recording&)> make;
  Difference told;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class DifferenceTest : public testing::TestWithParam<Change> {};

TEST_P(DifferenceTest, IsFoundAndTold) {
  const Recording a = test::train_recording();
  Recording b = a;
  GetParam().make(b);
  const auto found = first_difference(a, b);
  ASSERT_TRUE(found);
  const Difference& told = GetParam().told;
  EXPECT_EQ(found->kind, told.kind);
  EXPECT_EQ(found->op, told.op);
  EXPECT_EQ(found->path, told.path);
  EXPECT_EQ(found->expected, told.expected);
  EXPECT_EQ(found->found, told.found);
}

std::string name_of_change(const testing::TestParamInfo<Change>& info) { return info.param.name; }

using enum DifferenceKind;

INSTANTIATE_TEST_SUITE_P(
    OpStream, DifferenceTest,
    testing::Values(Change{"Operator",
                           [](Recording& r) { r.operators[0].name = "aten::bmm"; },
                           {kOpStream, 0, "ops[0]", "aten::mm(t1, t0)", "aten::bmm(t1, t0)"}},
                    Change{"Schema",
                           [](Recording& r) { r.operators[0].schema = "other"; },
                           {kOpStream, 0, "ops[0]", "aten::mm(t1, t0)", "aten::mm(t1, t0)"}},
                    Change{"TensorOfAnInput",
                           [](Recording& r) { r.ops[1].inputs[1] = {TensorRef{0}}; },
                           {kOpStream, 1, "ops[1].inputs[1]", "t2", "t0"}},
                    Change{"TensorInAList",
                           [](Recording& r) {
                             r.ops[3].inputs[0] = {List{{TensorRef{5}}, {TensorRef{4}}}};
                           },
                           {kOpStream, 3, "ops[3].inputs[0]", "{t5, undefined}", "{t5, t4}"}},
                    Change{"TensorWhereNoneWas",
                           [](Recording& r) { r.ops[2].inputs[2] = {TensorRef{3}}; },
                           {kOpStream, 2, "ops[2].inputs[2]", "1", "t3"}},
                    Change{"NumberOfInputs",
                           [](Recording& r) { r.ops[2].inputs.pop_back(); },
                           {kOpStream, 2, "ops[2].inputs.size", "3", "2"}},
                    Change{"Output",
                           [](Recording& r) { r.ops[0].outputs[0] = {TensorRef{4}}; },
                           {kOpStream, 0, "ops[0].outputs[0]", "t2", "t4"}},
                    Change{"UnannotatedWrites",
                           [](Recording& r) { r.ops[3].unannotated_writes.clear(); },
                           {kOpStream, 3, "ops[3].unannotated_writes", "[5]", "[]"}},
                    Change{"OneOpLess",
                           [](Recording& r) { r.ops.pop_back(); },
                           {kOpStream, 4, "ops[4]",
                            "aten::add_.Tensor(t0, t5, -0x1.999999999999ap-4 (-0.1))",
                            "the end of the step"}},
                    Change{"OneOpMore",
                           [](Recording& r) { r.ops.push_back(r.ops[0]); },
                           {kOpStream, 5, "ops[5]", "the end of the step", "aten::mm(t1, t0)"}},
                    Change{"TensorOfAStepInput",
                           [](Recording& r) { r.inputs[0].value = {TensorRef{2}}; },
                           {kOpStream, kNone, "inputs[0]", "t1", "t2"}},
                    Change{"Results",
                           [](Recording& r) { r.results = {4}; },
                           {kOpStream, kNone, "results", "[2]", "[4]"}}),
    name_of_change);

INSTANTIATE_TEST_SUITE_P(
    Memory, DifferenceTest,
    testing::Values(Change{"BytesOfABuffer",
                           [](Recording& r) { r.buffers[3].bytes = 8; },
                           {kGeometry, kNone, "buffers[3].bytes", "4", "8"}},
                    Change{"DeviceOfABuffer",
                           [](Recording& r) {
                             r.buffers[3].device = {DeviceKind::kCuda, 0};
                           },
                           {kGeometry, kNone, "buffers[3].device", "cpu", "cuda:0"}},
                    Change{"RemainderOfAParameter",
                           [](Recording& r) { r.buffers[0].address_mod_64 = 32; },
                           {kGeometry, kNone, "buffers[0].address_mod_64", "0", "32"}},
                    Change{"Sizes",
                           [](Recording& r) {
                             r.tensors[1].sizes = {2, 1};
                           },
                           {kGeometry, kNone, "tensors[1].sizes", "[2, 2]", "[2, 1]"}},
                    Change{"Strides",
                           [](Recording& r) {
                             r.tensors[1].strides = {2, 1};
                           },
                           {kGeometry, kNone, "tensors[1].strides", "[1, 2]", "[2, 1]"}},
                    Change{"DType",
                           [](Recording& r) { r.tensors[1].dtype = DType::kInt32; },
                           {kGeometry, kNone, "tensors[1].dtype", "float32", "int32"}},
                    Change{"WrappedNumber",
                           [](Recording& r) { r.tensors[3].wrapped_number = false; },
                           {kGeometry, kNone, "tensors[3].wrapped_number", "true", "false"}},
                    Change{"Role",
                           [](Recording& r) { r.buffers[2].role = Role::kResult; },
                           {kRole, kNone, "buffers[2].role", "temporary", "result"}},
                    Change{
                        "PathOfABuffer",
                        [](Recording& r) { r.buffers[0].path = "model.fc2.weight"; },
                        {kRole, kNone, "buffers[0].path", "model.fc1.weight", "model.fc2.weight"}},
                    Change{"HostTensor",
                           [](Recording& r) { r.buffers[3].content = make_blob("\0\0\0\0", 4); },
                           {kHostTensor, kNone, "buffers[3]", "e6f9acca6893caeb591ef4e963e120d4",
                            "2a33816ed7e0c373dbe563c737220b65"}}),
    name_of_change);

INSTANTIATE_TEST_SUITE_P(
    Numbers, DifferenceTest,
    testing::Values(
        Change{"Scalar",
               [](Recording& r) { r.ops[4].inputs[2] = {Real{-0.2}}; },
               {kScalar, 4, "ops[4].inputs[2]", "-0x1.999999999999ap-4 (-0.1)",
                "-0x1.999999999999ap-3 (-0.2)"}},
        Change{"ScalarOfAnotherType",
               [](Recording& r) { r.ops[2].inputs[2] = {Real{1}}; },
               {kScalar, 2, "ops[2].inputs[2]", "1", "0x1p+0 (1.0)"}},
        Change{"NumberOfTheStep",
               [](Recording& r) { r.inputs[1].value = {std::int64_t{4}}; },
               {kScalar, kNone, "inputs[1]", "3", "4"}},
        Change{"Hyperparameter",
               [](Recording& r) { r.optimizers[0].groups[0].hyperparameters[1].value = {true}; },
               {kHyperparameter, kNone, "optimizer.param_groups[0].nesterov", "false", "true"}},
        Change{"ParametersOfAGroup",
               [](Recording& r) { r.optimizers[0].groups[0].parameters.clear(); },
               {kHyperparameter, kNone, "optimizer.param_groups[0].parameters",
                "[model.fc1.weight]", "[]"}},
        Change{
            "OptimizerType",
            [](Recording& r) { r.optimizers[0].type = "torch::optim::Adam"; },
            {kHyperparameter, kNone, "optimizer.type", "torch::optim::SGD", "torch::optim::Adam"}},
        Change{"OptimizerState",
               [](Recording& r) { r.optimizers[0].state.pop_back(); },
               {kHyperparameter, kNone, "optimizer.state.size", "2", "1"}},
        Change{"TensorOfTheState",
               [](Recording& r) { r.optimizers[0].state[0].value = {TensorRef{4}}; },
               {kHyperparameter, kNone, "optimizer.state[model.fc1.weight].momentum_buffer", "t5",
                "t4"}}),
    name_of_change);

INSTANTIATE_TEST_SUITE_P(
    Objects, DifferenceTest,
    testing::Values(
        Change{"TrackedTensor",
               [](Recording& r) { r.tracked[1].tensor = 4; },
               {kTracked, kNone, "tracked[model.fc1.weight.grad]", "undefined", "t4"}},
        Change{"RequiresGrad",
               [](Recording& r) { r.tracked[0].requires_grad = false; },
               {kTracked, kNone, "tracked[model.fc1.weight].requires_grad", "true", "false"}},
        Change{"ExitGradient",
               [](Recording& r) { r.exit_gradients[0].tensor = kNoTensor; },
               {kTracked, kNone, "exit_gradients[model.fc1.weight]", "t4", "undefined"}},
        Change{"TrainingFlag",
               [](Recording& r) { r.modules[1].training = true; },
               {kTracked, kNone, "modules[model.fc1].training", "false", "true"}},
        Change{"ModuleOption",
               [](Recording& r) { r.modules[1].options[0].value = {std::int64_t{3}}; },
               {kTracked, kNone, "modules[model.fc1].in_features", "2", "3"}},
        Change{"ModuleAliases",
               [](Recording& r) { r.modules[1].aliases.pop_back(); },
               {kTracked, kNone, "modules[model.fc1].aliases", "[model.head, model.\"a.b\"]",
                "[model.head]"}},
        Change{"InputRequiresGrad",
               [](Recording& r) { r.inputs[0].requires_grad = true; },
               {kTracked, kNone, "inputs[0].requires_grad", "false", "true"}},
        Change{"InputThatIsAnother",
               [](Recording& r) { r.inputs[1].same_as = "inputs[0]"; },
               {kTracked, kNone, "inputs[1] (the tensor that it is)", "", "inputs[0]"}},
        Change{"Ambient",
               [](Recording& r) { r.ambient[0].value = "off"; },
               {kAmbient, kNone, "ambient[grad_mode]", "on", "off"}},
        Change{"SeekState",
               [](Recording& r) {
                 r.seeks[0].state = {5, 3};
               },
               {kSeek, 5, "seeks[0].state", "00000000000000030000000000000004",
                "00000000000000030000000000000005"}},
        Change{"NumberOfSeeks",
               [](Recording& r) { r.seeks.clear(); },
               {kSeek, kNone, "seeks.size", "1", "0"}}),
    name_of_change);

TEST(CompareTest, ARecordingAgreesWithItself) {
  EXPECT_FALSE(first_difference(test::train_recording(), test::train_recording()));
}

TEST(CompareTest, WhatMovesFromStepToStepIsLeftOut) {
  const Recording a = test::train_recording();
  Recording b = a;
  b.status = Status::kProbe;
  b.refusals.clear();
  b.buffers[0].digest = Digest{7, 7};                  // a parameter that the step updates
  b.buffers[1].digest = Digest{7, 7};                  // an input's bytes
  b.buffers[1].address_mod_64 = 48;                    // and where they lie
  b.inputs[1].range = {1, 2};                          // and their extent
  b.optimizers[0].state[1].value = {std::int64_t{8}};  // a step count
  EXPECT_FALSE(first_difference(a, b));
}

TEST(CompareTest, AnOutsideTensorIsToldApartFromOneThatTheHostMade) {
  Recording a = test::train_recording();
  a.buffers[3].path = "outside[0]";
  Recording b = a;
  b.buffers[3].content = make_blob("\0\0\0\0", 4);
  const auto found = first_difference(a, b);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, kOutsideTensor);
  EXPECT_EQ(found->path, "buffers[3] outside[0]");
}

TEST(CompareTest, TheMoreFundamentalDifferenceComesFirst) {
  const Recording a = test::train_recording();
  Recording b = a;
  b.ambient[0].value = "off";
  b.ops[4].inputs[2] = {Real{-0.2}};
  EXPECT_EQ(first_difference(a, b)->kind, kScalar);
  b.tensors[1].sizes = {2, 1};
  EXPECT_EQ(first_difference(a, b)->kind, kGeometry);
  b.ops.pop_back();
  EXPECT_EQ(first_difference(a, b)->kind, kOpStream);
}

}  // namespace
}  // namespace steptape::trace
