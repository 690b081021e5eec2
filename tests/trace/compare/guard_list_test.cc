#include "trace/compare/guard_list.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/trace/samples.h"

namespace steptape::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// "path: expected" of each guard of a kind.
std::vector<std::string> lines_of(const Recording& recording, GuardKind kind) {
  std::vector<std::string> lines;
  for (const Guard& guard : guards_of(recording)) {
    if (guard.kind == kind) lines.push_back(guard.path + ": " + guard.expected);
  }
  return lines;
}

Guard guard_at(const Recording& recording, GuardKind kind, const std::string& path) {
  for (const Guard& guard : guards_of(recording)) {
    if (guard.kind == kind && guard.path == path) return guard;
  }
  ADD_FAILURE() << "no guard " << name_of(kind) << " at " << path;
  return {};
}

Recording numbers_recording() { return test::numbers_trace().steps[0].recordings[0]; }

/// The sample with `tensor` as a second argument.
Recording with_second_input(TensorId tensor) {
  Recording recording = test::train_recording();
  recording.inputs[1].value = {TensorRef{tensor}};
  return recording;
}

TEST(GuardListTest, ArgumentsAreCounted) {
  EXPECT_THAT(lines_of(test::train_recording(), GuardKind::kArgumentCount),
              ElementsAre("inputs.size: 2"));
}

TEST(GuardListTest, AnArgumentThatIsNoTensorIsHeldByValue) {
  EXPECT_THAT(lines_of(test::train_recording(), GuardKind::kArgument), ElementsAre("inputs[1]: 3"));
  EXPECT_EQ(guard_at(test::train_recording(), GuardKind::kArgument, "inputs[1]").also_holds, "");
}

TEST(GuardListTest, AnArgumentThatAFormulaFollowsMayBeAnyOfItsKind) {
  EXPECT_EQ(guard_at(numbers_recording(), GuardKind::kArgument, "inputs[1]").also_holds,
            "any integer");
}

TEST(GuardListTest, ShapesAreThoseOfArgumentsThenOfTrackedTensors) {
  EXPECT_THAT(lines_of(test::train_recording(), GuardKind::kShape),
              ElementsAre("inputs[0].dim: 2", "inputs[0].size(0): 2", "inputs[0].size(1): 2",
                          "model.fc1.weight.dim: 2", "model.fc1.weight.size(0): 2",
                          "model.fc1.weight.size(1): 2"));
}

TEST(GuardListTest, StridesAreThoseOfTheTensor) {
  EXPECT_THAT(lines_of(test::train_recording(), GuardKind::kStride),
              ElementsAre("inputs[0].stride(0): 1", "inputs[0].stride(1): 2",
                          "model.fc1.weight.stride(0): 2", "model.fc1.weight.stride(1): 1"));
}

TEST(GuardListTest, DtypeDeviceAndFlagsAreListed) {
  Recording recording = test::train_recording();
  recording.tensors[1].conj = true;
  EXPECT_EQ(guard_at(recording, GuardKind::kDtype, "inputs[0].dtype").expected, "float32");
  EXPECT_EQ(guard_at(recording, GuardKind::kDevice, "inputs[0].device").expected, "cpu");
  EXPECT_EQ(guard_at(recording, GuardKind::kTensorFlags, "inputs[0].is_conj").expected, "on");
  EXPECT_EQ(guard_at(recording, GuardKind::kTensorFlags, "inputs[0].is_neg").expected, "off");
  EXPECT_EQ(guard_at(recording, GuardKind::kTensorFlags, "inputs[0].is_wrapped_number").expected,
            "off");
  EXPECT_EQ(guard_at(recording, GuardKind::kTensorKind, "inputs[0]").expected, "a plain tensor");
}

TEST(GuardListTest, AGradientThatWasNoneMustBeNoneAndNothingElse) {
  const auto guards = guards_of(test::train_recording());
  EXPECT_EQ(std::ranges::count(guards, "model.fc1.weight.grad", &Guard::object), 1);
  EXPECT_EQ(
      guard_at(test::train_recording(), GuardKind::kPresence, "model.fc1.weight.grad").expected,
      "None");
}

TEST(GuardListTest, AGradientThatWasThereMustBeThereWithItsGeometry) {
  Recording recording = test::train_recording();
  recording.tracked[1].tensor = 4;
  EXPECT_EQ(guard_at(recording, GuardKind::kPresence, "model.fc1.weight.grad").expected, "defined");
  EXPECT_EQ(guard_at(recording, GuardKind::kShape, "model.fc1.weight.grad.dim").expected, "2");
}

TEST(GuardListTest, AnUndefinedArgumentMustBeUndefined) {
  const Recording recording = with_second_input(kNoTensor);
  EXPECT_EQ(guard_at(recording, GuardKind::kPresence, "inputs[1]").expected, "undefined");
  EXPECT_THAT(lines_of(recording, GuardKind::kArgument), IsEmpty());
}

TEST(GuardListTest, AnInputThatRequiresGradHasNone) {
  Recording recording = test::train_recording();
  recording.inputs[0].requires_grad = true;
  EXPECT_EQ(guard_at(recording, GuardKind::kRequiresGrad, "inputs[0].requires_grad").expected,
            "true");
  EXPECT_EQ(guard_at(recording, GuardKind::kPresence, "inputs[0].grad").expected, "None");
}

TEST(GuardListTest, InferenceTensorsAreRefusedOutsideOfInferenceModeAlone) {
  Recording recording = test::train_recording();
  EXPECT_THAT(lines_of(recording, GuardKind::kInference),
              ElementsAre("inputs[0].is_inference: false"));
  recording.ambient.push_back({"inference_mode", "on"});
  EXPECT_THAT(lines_of(recording, GuardKind::kInference), IsEmpty());
}

TEST(GuardListTest, AlignmentIsThatOfBuffersWithBytes) {
  Recording recording = test::train_recording();
  EXPECT_THAT(
      lines_of(recording, GuardKind::kAlignment),
      ElementsAre("inputs[0].data_ptr modulo 64: 16", "model.fc1.weight.data_ptr modulo 64: 0"));
  recording.buffers[1].bytes = 0;
  EXPECT_THAT(lines_of(recording, GuardKind::kAlignment),
              ElementsAre("model.fc1.weight.data_ptr modulo 64: 0"));
}

TEST(GuardListTest, AnInputInATrackedTensorMustStayThere) {
  EXPECT_THAT(lines_of(with_second_input(0), GuardKind::kMemory),
              ElementsAre("inputs[1].data_ptr: within the memory of model.fc1.weight",
                          "model.fc1.weight.storage().nbytes: 16"));
}

TEST(GuardListTest, TrackedTensorsInOneMemoryMustStayTogether) {
  Recording recording = test::train_recording();
  recording.tracked.push_back({"model.tied", Role::kParameter, 0, true});
  EXPECT_THAT(
      lines_of(recording, GuardKind::kMemory),
      ElementsAre("model.fc1.weight.storage().nbytes: 16", "model.tied.storage().nbytes: 16",
                  "model.tied: in one memory with model.fc1.weight"));
}

TEST(GuardListTest, InputsLieApartFromWhatTheStepWrites) {
  Recording recording = test::train_recording();
  EXPECT_THAT(lines_of(recording, GuardKind::kOverlap),
              ElementsAre("inputs[0]: memory of its own"));
  recording.ops.resize(2);
  EXPECT_THAT(lines_of(recording, GuardKind::kOverlap), IsEmpty());
}

TEST(GuardListTest, ModulesAreHeldByTrainingFlagOptionsAndWhatIsRegistered) {
  const Recording recording = test::train_recording();
  EXPECT_THAT(lines_of(recording, GuardKind::kTraining),
              ElementsAre("model.training: true", "model.fc1.training: false"));
  EXPECT_THAT(lines_of(recording, GuardKind::kModuleOption),
              ElementsAre("model.fc1.in_features: 2", "model.fc1.bias: false"));
  EXPECT_THAT(lines_of(recording, GuardKind::kParameters),
              ElementsAre("model.fc1.weight: the parameter registered when it was recorded"));
  EXPECT_THAT(lines_of(recording, GuardKind::kModuleBuffers), IsEmpty());
  EXPECT_EQ(guard_at(recording, GuardKind::kSubModules, "model.fc1").expected,
            "the sub-module registered when it was recorded");
}

TEST(GuardListTest, AModuleBufferStandsWithItsModule) {
  Recording recording = test::train_recording();
  recording.tracked[0].role = Role::kModuleBuffer;
  EXPECT_THAT(lines_of(recording, GuardKind::kModuleBuffers),
              ElementsAre("model.fc1.weight: the module buffer registered when it was recorded"));
}

TEST(GuardListTest, AnObjectOfTwoPathsStandsOnceWithBoth) {
  const Recording recording = test::train_recording();
  EXPECT_THAT(guard_at(recording, GuardKind::kDtype, "model.fc1.weight.dtype").aliases,
              ElementsAre("model.head.weight.dtype"));
  EXPECT_THAT(guard_at(recording, GuardKind::kTraining, "model.fc1.training").aliases,
              ElementsAre("model.head.training", "model.\"a.b\".training"));
}

TEST(GuardListTest, HyperparametersWithoutFormulasAreHeldByValue) {
  const Recording recording = test::train_recording();
  EXPECT_THAT(lines_of(recording, GuardKind::kHyperparameter),
              ElementsAre("optimizer.param_groups[0].lr: 0.1",
                          "optimizer.param_groups[0].nesterov: false"));
  EXPECT_EQ(
      guard_at(recording, GuardKind::kHyperparameter, "optimizer.param_groups[0].lr").also_holds,
      "");
}

TEST(GuardListTest, HyperparametersWithFormulasMayBeAnyNumber) {
  const Recording recording = numbers_recording();
  for (const char* path : {"optimizer.param_groups[0].lr", "optimizer.param_groups[0].betas[1]"}) {
    EXPECT_EQ(guard_at(recording, GuardKind::kHyperparameter, path).also_holds, "any number");
  }
}

TEST(GuardListTest, AHyperparameterThatIsNoNumberIsHeldByValueInAnyCase) {
  Recording recording = numbers_recording();
  recording.optimizers[0].groups[0].hyperparameters.push_back({"mode", {std::string("min")}});
  const Guard guard =
      guard_at(recording, GuardKind::kHyperparameter, "optimizer.param_groups[0].mode");
  EXPECT_EQ(guard.expected, "\"min\"");
  EXPECT_EQ(guard.also_holds, "");
}

TEST(GuardListTest, GroupsAndStateOfOptimizersAreListed) {
  const Recording recording = test::train_recording();
  EXPECT_THAT(
      lines_of(recording, GuardKind::kParameterGroups),
      ElementsAre("optimizer.param_groups.size: 1",
                  "optimizer.param_groups[0].params: the parameters it held when it was recorded "
                  "(1)",
                  "optimizer.param_groups[0].params[0]: model.fc1.weight"));
  EXPECT_THAT(lines_of(recording, GuardKind::kOptimizerState),
              ElementsAre("optimizer.state.size: 1",
                          "optimizer.state[model.fc1.weight]: the tensors it held when it was "
                          "recorded (momentum_buffer, step)"));
}

TEST(GuardListTest, WhatTheProgramDeclaresIsListed) {
  const Recording recording = numbers_recording();
  EXPECT_THAT(lines_of(recording, GuardKind::kHostValue), ElementsAre("tau: 0.5"));
  EXPECT_EQ(guard_at(recording, GuardKind::kHostValue, "tau").also_holds, "any finite real");
  EXPECT_THAT(lines_of(recording, GuardKind::kFact), ElementsAre("mode: \"warm\""));
  EXPECT_THAT(lines_of(test::train_recording(), GuardKind::kAmbient),
              ElementsAre("ambient.grad_mode: on"));
}

TEST(GuardListTest, PredicatesStandAsTheirFormulas) {
  EXPECT_THAT(lines_of(numbers_recording(), GuardKind::kPredicate),
              ElementsAre("tau: not zero", "-optimizer.param_groups[0].lr: zero"));
}

TEST(GuardListTest, APredicateThatWaitsForAReadIsCheckedLast) {
  Recording recording = numbers_recording();
  recording.formulas.push_back(leaf(3));
  const auto newest = static_cast<Index>(recording.formulas.size() - 1);
  recording.predicates.insert(recording.predicates.begin(), {newest, true});
  EXPECT_EQ(guards_of(recording).back().path, "ops[1]");
  EXPECT_EQ(guards_of(recording).back().kind, GuardKind::kPredicate);
}

TEST(GuardListTest, CheckedReadsAreListedAndFreeOnesAreNot) {
  Recording recording = numbers_recording();
  EXPECT_THAT(lines_of(recording, GuardKind::kHostRead), IsEmpty());
  recording.reads[0].use = ReadUse::kChecked;
  EXPECT_THAT(lines_of(recording, GuardKind::kHostRead), ElementsAre("ops[1]: 2.0"));
}

TEST(GuardListTest, AnUntrackedTensorMustStayAlive) {
  Recording recording = test::train_recording();
  recording.buffers[0].path = "outside[0]";
  recording.buffers[0].role = Role::kConstant;
  recording.tracked.clear();
  EXPECT_THAT(lines_of(recording, GuardKind::kAlive), ElementsAre("outside[0]: alive"));
  EXPECT_THAT(lines_of(recording, GuardKind::kMemory),
              ElementsAre("outside[0].storage().nbytes: 16"));
}

TEST(GuardListTest, GuardsStandInTheOrderInWhichTheyAreChecked) {
  const std::vector<Guard> guards = guards_of(test::train_recording());
  std::vector<std::string> objects;
  for (const Guard& guard : guards) {
    if (objects.empty() || objects.back() != guard.object) objects.push_back(guard.object);
  }
  EXPECT_THAT(objects, ElementsAre("inputs", "inputs[0]", "inputs[1]", "ambient.grad_mode", "model",
                                   "model.fc1", "model.fc1.weight", "optimizer", "model.fc1.weight",
                                   "model.fc1.weight.grad", "inputs[0]"));
}

}  // namespace
}  // namespace steptape::trace
