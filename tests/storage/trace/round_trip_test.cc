#include <gmock/gmock.h>

#include "tests/storage/trace_file.h"
#include "tests/trace/text/text_parse.h"
#include "trace/text/text.h"

namespace steptape::storage {
namespace {

using RoundTripTest = TraceFileTest;

TEST_F(RoundTripTest, EveryKindOfThingComesBack) {
  const trace::Trace trace = test::train_trace();
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, WhatBecameOfCallsComesBack) {
  trace::Trace trace = test::train_trace();
  trace.steps.insert(trace.steps.begin(), {"never recorded", "train.py:3", {}, test::account()});
  trace.steps.back().account = {0, 0, 0, 1, 0, {}};
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, HostNumbersComeBack) {
  const trace::Trace trace = test::numbers_trace();
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, WhichInputsAreOneTensorComesBack) {
  trace::Trace trace = test::train_trace();
  trace.steps[0].recordings[0].inputs[1].same_as = "inputs[0]";
  written(trace);
  EXPECT_EQ(read(path_), trace);
  EXPECT_EQ(trace::parse(trace::print(trace, trace::Contents::kBytes)), trace);
}

TEST_F(RoundTripTest, AnEmptyTraceComesBack) {
  written({});
  EXPECT_EQ(read(path_), trace::Trace());
}

TEST_F(RoundTripTest, TheSameTraceGivesTheSameBytes) {
  EXPECT_EQ(written(test::train_trace()), written(test::train_trace()));
}

TEST_F(RoundTripTest, ValuesKeepEveryBit) {
  trace::Trace trace = test::train_trace();
  auto& inputs = trace.steps[0].recordings[0].inputs;
  for (const trace::Value& value : std::vector<trace::Value>{
           {trace::None()},
           {trace::Real{-0.0}},
           {trace::Real{std::bit_cast<double>(0x7ff8000000000123u)}},
           {trace::Complex{{1.5}, {-2.5}}},
           {std::string("\xff\0 not UTF-8", 12)},
           {trace::Device{trace::DeviceKind::kCuda, 3}},
           {trace::GeneratorRef{"default"}},
           {trace::Opaque{"Stream"}},
           {trace::IntList{INT64_MIN, -1, INT64_MAX}},
           {trace::List{{trace::List{}}, {trace::IntList{}}, {trace::TensorRef{}}}}}) {
    inputs.push_back({"inputs", value, false, std::nullopt});
  }
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, NamesOfAnyBytesComeBack) {
  const std::string name = "\xff not UTF-8";
  trace::Trace trace = test::train_trace();
  trace::Recording& recording = trace.steps[0].recordings[0];
  trace.steps[0].name = trace.steps[0].place = name;
  trace.run.push_back({name, name});
  recording.operators[0] = {name, name, name};
  recording.tracked[0].path = name;
  recording.tracked[0].aliases = {name};
  recording.tracked[0].in_state_dict = false;
  recording.updates = {name};
  recording.effects = {{name, name, name}};
  recording.held = {{name, name, name, trace::HeldPlace::Rule::kLost}};
  recording.places = {{.path = name, .input = 0, .is_dropped = true, .place = 0}};
  recording.scopes.push_back(name);
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, ListsAsDeepAsAllowedComeBack) {
  trace::Trace trace = test::train_trace();
  trace::Value& value = trace.steps[0].recordings[0].inputs[0].value;
  for (int depth = 0; depth < 32; ++depth) value = {trace::List{value}};
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, TensorBytesOfManyBlocksComeBackPackedOrNot) {
  const trace::Trace trace = trace_of_state(noise(5'000'001));
  for (Compression compression : {Compression::kNone, Compression::kZstd}) {
    const std::string bytes = written(trace, {compression});
    EXPECT_GE(blocks_of(bytes).size(), 6u);
    EXPECT_EQ(read(path_), trace);
  }
}

TEST_F(RoundTripTest, NoBlockIsLargerThanOneMebibyte) {
  for (const Block& block : blocks_of(written(trace_of_state(noise(5'000'001))))) {
    EXPECT_LE(block.length, kMaxPayloadBytes);
  }
}

TEST_F(RoundTripTest, ZerosTakeLittleRoom) {
  const trace::Trace trace =
      trace_of_state(std::make_shared<const std::vector<std::byte>>(std::size_t{20} << 20));
  EXPECT_LT(written(trace).size(), std::size_t{200} << 10);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, ARecordingOfManyBlocksComesBack) {
  trace::Trace trace = test::train_trace();
  trace::Recording& recording = trace.steps[0].recordings[0];
  const trace::Op op = recording.ops[0];
  for (int i = 0; i < 60'000; ++i) recording.ops.push_back(op);
  recording.scopes.emplace_back(1'500'000, 's');
  const std::vector<Block> blocks = blocks_of(written(trace, {Compression::kNone}));
  EXPECT_GE(
      std::ranges::count_if(blocks, [](const Block& b) { return b.is(BlockType::kRecording); }), 3);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, BytesThatTwoRecordingsShareAreStoredOnce) {
  trace::Trace trace = trace_of_state(noise(500'000));
  const std::size_t once = written(trace).size();
  trace.state.push_back({"again", 0, trace.state[0].content});
  EXPECT_LT(written(trace).size(), once + 1000);
  const trace::Trace back = read(path_);
  EXPECT_EQ(back, trace);
  EXPECT_EQ(back.state[0].content, back.state[1].content);
}

TEST_F(RoundTripTest, StepsKeepTheirRecordingsApart) {
  trace::Trace trace = test::train_trace();
  trace.steps.push_back({"eval", "eval.cc:1", {}});
  trace.steps.push_back({"update", "", {trace.steps[0].recordings[0], trace::Recording()}});
  written(trace);
  EXPECT_EQ(read(path_), trace);
}

TEST_F(RoundTripTest, ATraceThatNoReaderWouldTakeIsNotWritten) {
  trace::Trace trace = test::train_trace();
  trace.steps[0].recordings[0].results = {99};
  try {
    write(trace, path_);
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("step train, recording 0, result 0: tensor 99"));
  }
  EXPECT_THAT(names_in_folder(), testing::IsEmpty());
}

}  // namespace
}  // namespace steptape::storage
