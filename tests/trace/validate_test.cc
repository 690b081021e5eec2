#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "steptape/error.h"
#include "tests/trace/samples.h"

namespace steptape::trace {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(ValidateTest, TheGoldenTraceIsValid) { EXPECT_NO_THROW(validate(test::train_trace())); }
TEST(ValidateTest, AnEmptyTraceIsValid) { EXPECT_NO_THROW(validate(Trace())); }

/// One thing made wrong, and what is said of it.
struct Wrong {
  std::string name;
  std::function<void(Trace&)> make;
  std::string said;
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest looks for this name
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

Wrong in_recording(std::string name, std::function<void(Recording&)> make, std::string said) {
  return {std::move(name), [make](Trace& trace) { make(trace.steps[0].recordings[0]); },
          "step train, recording 0" + said};
}

class RefusedTest : public testing::TestWithParam<Wrong> {};

TEST_P(RefusedTest, WithItsPlace) {
  Trace trace = test::train_trace();
  GetParam().make(trace);
  try {
    validate(trace);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(std::string(error.what()), GetParam().said);
  }
}

std::string name_of_case(const testing::TestParamInfo<Wrong>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Buffer, RefusedTest,
    testing::Values(
        in_recording(
            "Role", [](Recording& r) { r.buffers[1].role = static_cast<Role>(77); },
            ", buffer 1: role 77 is none that exists"),
        in_recording(
            "DeviceKind",
            [](Recording& r) { r.buffers[1].device.kind = static_cast<DeviceKind>(0); },
            ", buffer 1: device kind 0 is none that exists"),
        in_recording(
            "DeviceIndex", [](Recording& r) { r.buffers[1].device.index = -1; },
            ", buffer 1: device index -1 is negative"),
        in_recording(
            "Remainder", [](Recording& r) { r.buffers[1].address_mod_64 = 64; },
            ", buffer 1: address remainder 64, but it is below 64"),
        in_recording(
            "Bytes", [](Recording& r) { r.buffers[1].bytes = ~std::uint64_t{0}; },
            ", buffer 1: 18446744073709551615 bytes, more than any memory holds"),
        in_recording(
            "ContentSize", [](Recording& r) { r.buffers[3].content = make_blob("abc", 3); },
            ", buffer 3: content of 3 bytes, but the buffer has 4"),
        in_recording(
            "ContentDigest",
            [](Recording& r) {
              r.buffers[3].digest = Digest{1, 2};
            },
            ", buffer 3: content has digest e6f9acca6893caeb591ef4e963e120d4, but the buffer's is "
            "00000000000000020000000000000001")),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(Number, RefusedTest,
                         testing::Values(in_recording(
                                             "FormulaOfAProof",
                                             [](Recording& r) {
                                               r.proofs = {{3, {}, false}};
                                             },
                                             ", proof 0: formula 3, but there are 0"),
                                         in_recording(
                                             "LookupUnderNothing",
                                             [](Recording& r) {
                                               r.lookups = {{"tau", {}}};
                                             },
                                             ", lookup 0: is under no number")),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Place, RefusedTest,
    testing::Values(in_recording(
                        "OfNoInput", [](Recording& r) { r.places = {{.path = "h", .input = 7}}; },
                        ", place 0: input 7, but there are 2"),
                    in_recording(
                        "OfNoTensor",
                        [](Recording& r) {
                          r.inputs[0].value = {std::int64_t{1}};
                          r.places = {{.path = "h", .input = 0}};
                        },
                        ", place 0: input 0 is not a tensor"),
                    in_recording(
                        "Two",
                        [](Recording& r) {
                          r.places = {{.path = "h", .input = 0}, {.path = "g", .input = 0}};
                        },
                        ", place 1: input 0 is in two places"),
                    in_recording(
                        "OfNoResult",
                        [](Recording& r) { r.places = {{.path = "h", .input = 0, .result = 7}}; },
                        ", place 0: result 7, but there are 1"),
                    in_recording(
                        "OfAnotherShape",
                        [](Recording& r) {
                          r.places = {{.path = "h", .input = 0, .result = 0, .is_carried = true}};
                        },
                        ", place 0: result 0 cannot take the place of input 0"),
                    in_recording(
                        "OfNothing", [](Recording& r) { r.places = {{.path = "h"}}; },
                        ", place 0: has no tensor"),
                    in_recording(
                        "OfNoResultAfterOneThatIsCarried",
                        [](Recording& r) {
                          r.places = {{.path = "h", .result = 0, .is_carried = true},
                                      {.path = "g", .input = 0, .result = 7}};
                        },
                        ", place 1: result 7, but there are 1"),
                    in_recording(
                        "InNone",
                        [](Recording& r) { r.places = {{.path = "h", .input = 0, .place = 1}}; },
                        ", place 0: place 1, but there are 0"),
                    in_recording(
                        "OfNoRule",
                        [](Recording& r) {
                          r.held = {{"h", "t", "t", static_cast<HeldPlace::Rule>(9)}};
                        },
                        ", held place 0: rule 9 is none that exists")),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Tensor, RefusedTest,
    testing::Values(
        in_recording(
            "Buffer", [](Recording& r) { r.tensors[2].buffer = 6; },
            ", tensor 2: buffer 6, but there are 6"),
        in_recording(
            "DType", [](Recording& r) { r.tensors[2].dtype = static_cast<DType>(0); },
            ", tensor 2: dtype 0 is none that exists"),
        in_recording(
            "Offset", [](Recording& r) { r.tensors[2].offset = -1; },
            ", tensor 2: offset -1 is negative"),
        in_recording(
            "Strides", [](Recording& r) { r.tensors[2].strides = {1}; },
            ", tensor 2: a tensor has 2 sizes and 1 strides"),
        in_recording(
            "Size",
            [](Recording& r) {
              r.tensors[2].sizes = {-2, 2};
            },
            ", tensor 2: size -2 is negative"),
        in_recording(
            "End", [](Recording& r) { r.tensors[2].offset = 1; },
            ", tensor 2: ends at byte 20 of buffer 2, which has 16"),
        in_recording(
            "Start",
            [](Recording& r) {
              r.tensors[2].strides = {-2, 1};
            },
            ", tensor 2: a tensor starts at element -2, before its buffer"),
        in_recording(
            "RangeOverflow",
            [](Recording& r) {
              r.tensors[2].strides = {kLargest, 1};
            },
            ", tensor 2: the byte range of sizes [2, 2], strides [9223372036854775807, 1] and "
            "offset 0 overflows"),
        in_recording(
            "NumelOverflow",
            [](Recording& r) {
              r.tensors[2].sizes = {kLargest, kLargest};
              r.tensors[2].strides = {0, 0};
            },
            ", tensor 2: the number of elements overflows")),
    name_of_case);

Value deep_list() {
  Value value;
  for (int i = 0; i < 40; ++i) value = Value{List{value}};
  return value;
}

INSTANTIATE_TEST_SUITE_P(
    Op, RefusedTest,
    testing::Values(
        in_recording(
            "Operator", [](Recording& r) { r.ops[3].op = 3; },
            ", op 3: operator 3, but there are 3"),
        in_recording(
            "OperatorName", [](Recording& r) { r.operators[1].name = ""; },
            ", operator 1: has no name"),
        in_recording(
            "Input", [](Recording& r) { r.ops[0].inputs[1] = {TensorRef{99}}; },
            ", op 0, input 1: tensor 99, but there are 6"),
        in_recording(
            "InputInList", [](Recording& r) { r.ops[0].inputs[1] = {List{{TensorRef{6}}}}; },
            ", op 0, input 1: tensor 6, but there are 6"),
        in_recording(
            "DeepInput", [](Recording& r) { r.ops[0].inputs[1] = deep_list(); },
            ", op 0, input 1: lists lie more than 32 deep in lists"),
        in_recording(
            "InputDevice",
            [](Recording& r) {
              r.ops[0].inputs[1] = {Device{static_cast<DeviceKind>(9), 0}};
            },
            ", op 0, input 1: device kind 9 is none that exists"),
        in_recording(
            "Output", [](Recording& r) { r.ops[0].outputs[0] = {TensorRef{6}}; },
            ", op 0, output 0: tensor 6, but there are 6"),
        in_recording(
            "Write", [](Recording& r) { r.ops[3].unannotated_writes = {kNoTensor}; },
            ", op 3, unannotated write 0: tensor 4294967295, but there are 6"),
        in_recording(
            "Module", [](Recording& r) { r.ops[0].module = 2; },
            ", op 0: module 2, but there are 2"),
        in_recording(
            "Scope", [](Recording& r) { r.ops[0].scope = 1; }, ", op 0: scope 1, but there are 1"),
        in_recording(
            "Phase", [](Recording& r) { r.ops[0].phase = static_cast<Phase>(3); },
            ", op 0: phase 3 is none that exists"),
        in_recording(
            "Sequence", [](Recording& r) { r.ops[0].sequence = -2; },
            ", op 0: sequence number -2 is negative")),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Around, RefusedTest,
    testing::Values(
        in_recording(
            "Status", [](Recording& r) { r.status = static_cast<Status>(0); },
            ": status 0 is none that exists"),
        in_recording(
            "Seek", [](Recording& r) { r.seeks[0].before_op = 6; },
            ", seek 0: op 6, but there are 5"),
        in_recording(
            "Input", [](Recording& r) { r.inputs[0].value = {TensorRef{6}}; },
            ", step input 0: tensor 6, but there are 6"),
        in_recording(
            "InputRange",
            [](Recording& r) {
              r.inputs[1].range = {9, 0};
            },
            ", step input 1: its range starts at 9 and ends at 0"),
        in_recording(
            "InputThatIsNone", [](Recording& r) { r.inputs[1].same_as = "inputs[9]"; },
            ", step input 1: it is `inputs[9]`, which is neither an input nor tracked"),
        in_recording(
            "Result", [](Recording& r) { r.results[0] = 6; },
            ", result 0: tensor 6, but there are 6"),
        in_recording(
            "Tracked", [](Recording& r) { r.tracked[0].tensor = 6; },
            ", tracked tensor 0: tensor 6, but there are 6"),
        in_recording(
            "TrackedRole", [](Recording& r) { r.tracked[0].role = static_cast<Role>(0); },
            ", tracked tensor 0: role 0 is none that exists"),
        in_recording(
            "UndefinedParameter", [](Recording& r) { r.tracked[0].tensor = kNoTensor; },
            ", tracked tensor 0: `model.fc1.weight` is undefined, which only a gradient may be"),
        in_recording(
            "TrackedTwice", [](Recording& r) { r.tracked[1].path = "model.fc1.weight"; },
            ", tracked tensor 1: `model.fc1.weight` is tracked twice"),
        in_recording(
            "ExitGradient", [](Recording& r) { r.exit_gradients[0].tensor = 6; },
            ", exit gradient 0: tensor 6, but there are 6"),
        in_recording(
            "GivenNoMemory",
            [](Recording& r) {
              r.exit_gradients[0] = {"model.fc1.weight", kNoTensor, true};
            },
            ", exit gradient 0: `model.fc1.weight` is given memory, and is undefined"),
        in_recording(
            "GivenMemoryUntracked",
            [](Recording& r) {
              r.exit_gradients[0] = {"model.fc9.weight", 4, true};
            },
            ", exit gradient 0: `model.fc9.weight` is given memory, and is not tracked"),
        in_recording(
            "AccessedModule", [](Recording& r) { r.module_access[0].module = 2; },
            ", module access 0: module 2, but there are 2"),
        in_recording(
            "AccessingCall", [](Recording& r) { r.module_access[1].call = 0; },
            ", module access 1: call 0, but calls are counted from 1"),
        in_recording(
            "CallOfAnOp", [](Recording& r) { r.ops[1].call = 0; },
            ", op 1: call 0, but calls are counted from 1"),
        in_recording(
            "Option", [](Recording& r) { r.modules[1].options[1].value = {TensorRef{6}}; },
            ", module 1, option 1: tensor 6, but there are 6"),
        in_recording(
            "AccessingOp", [](Recording& r) { r.module_access[0].first_op = 5; },
            ", module access 0: op 5, but there are 5"),
        in_recording(
            "Hyperparameter",
            [](Recording& r) {
              r.optimizers[0].groups[0].hyperparameters[0].value = {TensorRef{6}};
            },
            ", optimizer 0, group 0, hyperparameter 0: tensor 6, but there are 6"),
        in_recording(
            "OptimizerState", [](Recording& r) { r.optimizers[0].state[0].value = {TensorRef{6}}; },
            ", optimizer 0, state 0: tensor 6, but there are 6"),
        in_recording(
            "OpDigests", [](Recording& r) { r.op_digests.resize(4); },
            ": 4 ops have digests, but there are 5"),
        in_recording(
            "OpTimes", [](Recording& r) { r.op_ns.resize(4); },
            ": 4 ops have times, but there are 5"),
        in_recording(
            "RefusalCode", [](Recording& r) { r.refusals[0].code = static_cast<RefusalCode>(200); },
            ", refusal 0: code 200 is none that exists"),
        in_recording(
            "RefusalOp", [](Recording& r) { r.refusals[0].op_index = 6; },
            ", refusal 0: op 6, but there are 5"),
        in_recording(
            "NegativeRefusalOp", [](Recording& r) { r.refusals[0].op_index = -2; },
            ", refusal 0: op -2 is negative")),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Trace, RefusedTest,
    testing::Values(Wrong{"StepTwice",
                          [](Trace& t) {
                            t.steps.push_back({"train", "", {}});
                          },
                          "step train: another step has the same name"},
                    Wrong{"StateWithoutPath", [](Trace& t) { t.state[1].path = ""; },
                          "saved state 1: has no path"},
                    Wrong{"StateTwice", [](Trace& t) { t.state[1].path = t.state[0].path; },
                          "saved state 1: `model.fc1.weight` was saved before"},
                    Wrong{"StateWithoutBytes", [](Trace& t) { t.state[1].content = nullptr; },
                          "saved state 1: `generator.default` has no bytes"},
                    Wrong{"StateRemainder", [](Trace& t) { t.state[1].address_mod_64 = 64; },
                          "saved state 1: address remainder 64, but it is below 64"}),
    name_of_case);

/// A run computes an address from these.
TEST(ValidateTest, AWindowIsWhatItsOpGives) {
  const std::vector<std::pair<std::string, std::function<void(Recording&)>>> wrong = {
      {"op 3 neither selects nor slices", [](Recording& r) { r.windows[0].op = 3; }},
      {"op 9, but there are 5", [](Recording& r) { r.windows[0].op = 9; }},
      {"buffer 0 is not what op 4 gives", [](Recording& r) { r.windows[0].buffer = 0; }},
      {"buffer 5 is not what op 4 gives", [](Recording& r) { r.buffers[5].bytes = 32; }},
      {"buffer 5 is not what op 4 gives",
       [](Recording& r) { r.buffers[5].role = Role::kTemporary; }},
      {"op 4 gives another tensor than it is said to",
       [](Recording& r) { r.tensors[5].strides = {0}; }},
      {"op 4 gives another tensor than it is said to",
       [](Recording& r) { r.tensors[5].dtype = DType::kInt32; }},
      {"op 4 gives another tensor than it is said to",
       [](Recording& r) { r.ops[4].inputs[1] = {std::int64_t{2}}; }},
      {"op 4 gives another tensor than it is said to",
       [](Recording& r) { r.ops[4].inputs.pop_back(); }},
      {"buffer 5 is found elsewhere, too",
       [](Recording& r) {
         r.inputs.emplace_back().path = "inputs[2]";
         r.inputs.back().value = {TensorRef{5}};
       }},
      {"buffer 5 is found elsewhere, too", [](Recording& r) { r.windows.push_back(r.windows[0]); }},
  };
  EXPECT_NO_THROW(validate(test::numbers_trace()));
  for (const auto& [said, make] : wrong) {
    Recording recording = test::numbers_trace().steps[0].recordings[0];
    std::erase_if(recording.scalars, [](const ScalarSite& site) { return site.op == 4; });
    make(recording);
    try {
      validate(recording);
      ADD_FAILURE() << "accepted: " << said;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(said));
    }
  }
}

TEST(ValidateTest, ARecordingAloneHasNoPlaceBeforeIt) {
  Recording recording = test::train_recording();
  recording.results[0] = 42;
  try {
    validate(recording);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "result 0: tensor 42, but there are 6");
  }
}

TEST(ValidateTest, WhatMayBeAbsentMayBeAbsent) {
  Recording recording = test::train_recording();
  recording.results = {kNoTensor};
  recording.exit_gradients[0].tensor = kNoTensor;
  recording.ops[0].module = kNone;
  recording.ops[0].scope = kNone;
  EXPECT_NO_THROW(validate(recording));
}

}  // namespace
}  // namespace steptape::trace
