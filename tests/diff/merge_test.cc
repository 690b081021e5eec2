#include "diff/merge.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "steptape/error.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string> kNames = {"a.tape", "b.tape", "c.tape"};

trace::Recording recording_of_batch(std::int64_t batch) {
  trace::Recording recording = test::make_up({.seed = 3, .modules = 2, .batch = batch});
  recording.status = trace::Status::kTrusted;
  return recording;
}

trace::Trace trace_of(std::vector<trace::Recording> recordings, const std::string& step = "train") {
  trace::Trace trace;
  trace.producer = {{"steptape", "0.1.0"}, {"torch", "2.11.0"}};
  trace.run = {{"host", "north"}, {"pid", "7"}};
  trace.environment = {{"threads", "2"}};
  trace.steps.push_back({step, "train.cc:41", std::move(recordings)});
  return trace;
}

Merged merged(const std::vector<trace::Trace>& traces) {
  Merged out = merge(traces, kNames);
  validate(out.trace);
  return out;
}

/// Why a trace of one batch size and a changed trace of another cannot be joined.
std::string conflict(const std::function<void(trace::Trace&)>& change, std::int64_t batch = 16) {
  trace::Trace other = trace_of({recording_of_batch(batch)});
  change(other);
  validate(other);
  try {
    merge(std::vector{trace_of({recording_of_batch(32)}), other}, kNames);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "joined";
}

std::string conflict_of_recording(const std::function<void(trace::Recording&)>& change,
                                  std::int64_t batch = 16) {
  return conflict([&](trace::Trace& trace) { change(trace.steps[0].recordings[0]); }, batch);
}

TEST(MergeTest, OneTraceStaysAsItIs) {
  const trace::Trace trace = test::train_trace();
  EXPECT_EQ(merged({trace}).trace, trace);
}

TEST(MergeTest, ShapesBecomeVariantsInOrder) {
  const Merged found =
      merged({trace_of({recording_of_batch(32)}), trace_of({recording_of_batch(16)})});
  EXPECT_THAT(found.trace.steps[0].recordings,
              ElementsAre(recording_of_batch(32), recording_of_batch(16)));
  EXPECT_THAT(found.steps[0].kept, ElementsAre(Origin{0, 0}, Origin{1, 0}));
  EXPECT_THAT(found.steps[0].left_out, IsEmpty());
}

TEST(MergeTest, StepsOfOtherNamesStandBesideEachOther) {
  const Merged found =
      merged({trace_of({recording_of_batch(32)}), trace_of({recording_of_batch(32)}, "eval")});
  ASSERT_EQ(found.trace.steps.size(), 2u);
  EXPECT_EQ(found.trace.steps[1].name, "eval");
  EXPECT_THAT(found.steps[1].kept, ElementsAre(Origin{1, 0}));
}

TEST(MergeTest, WhatDoesTheSameIsKeptOnce) {
  trace::Recording later = recording_of_batch(32);
  later.scopes.push_back("train.py:41");
  later.buffers[0].digest = trace::Digest{1, 2};
  const Merged found =
      merged({trace_of({recording_of_batch(32)}),
              trace_of({recording_of_batch(16), recording_of_batch(32)}), trace_of({later})});
  EXPECT_THAT(found.trace.steps[0].recordings,
              ElementsAre(recording_of_batch(32), recording_of_batch(16)));
  EXPECT_THAT(found.steps[0].left_out, ElementsAre(Origin{1, 1}, Origin{2, 0}));
}

TEST(MergeTest, WhatAGuardTellsApartAreVariants) {
  const trace::Recording a = recording_of_batch(32);
  trace::Recording b = a;
  b.buffers[0].address_mod_64 = 16;
  EXPECT_EQ(relation_of(a, b), Relation::kVariants);
}

TEST(MergeTest, OfThoseTheOneThatGotFurthestIsKept) {
  trace::Recording probe = recording_of_batch(32);
  probe.status = trace::Status::kProbe;
  const Merged found = merged({trace_of({probe}), trace_of({recording_of_batch(32)})});
  EXPECT_EQ(found.trace.steps[0].recordings[0].status, trace::Status::kTrusted);
  EXPECT_THAT(found.steps[0].kept, ElementsAre(Origin{1, 0}));
  EXPECT_THAT(found.steps[0].left_out, ElementsAre(Origin{0, 0}));
}

TEST(MergeTest, AStepHasOneWarmUp) {
  trace::Recording first = recording_of_batch(32);
  first.status = trace::Status::kWarmUp;
  trace::Recording second = recording_of_batch(8);
  second.status = trace::Status::kWarmUp;
  const Merged found = merged(
      {trace_of({first, recording_of_batch(32)}), trace_of({second, recording_of_batch(8)})});
  EXPECT_THAT(found.trace.steps[0].recordings,
              ElementsAre(first, recording_of_batch(32), recording_of_batch(8)));
  EXPECT_THAT(found.steps[0].left_out, ElementsAre(Origin{1, 0}));
}

TEST(MergeTest, EqualContentsAreShared) {
  trace::Trace a = trace_of({test::train_recording()});
  trace::Trace b = trace_of({test::train_recording()}, "again");
  const auto content = [](const trace::Trace& trace, std::size_t step) {
    return trace.steps[step].recordings[0].buffers[3].content;
  };
  ASSERT_NE(content(a, 0), content(b, 0));
  const Merged found = merged({a, b});
  EXPECT_EQ(content(found.trace, 0), content(found.trace, 1));
}

TEST(MergeTest, FactsOfTheRunOnWhichAllAgreeStay) {
  trace::Trace other = trace_of({recording_of_batch(16)});
  other.run[1].value = "8";
  EXPECT_THAT(merged({trace_of({recording_of_batch(32)}), other}).trace.run,
              ElementsAre(trace::Fact{"host", "north"}));
}

TEST(MergeTest, OfSavedStateTheFirstOfEachPathStays) {
  trace::Trace b = trace_of({recording_of_batch(16)});
  b.state.push_back({"model.m0.weight", 0, trace::make_blob("1234", 4)});
  trace::Trace c = trace_of({recording_of_batch(8)});
  c.state = {{"model.m0.weight", 0, trace::make_blob("5678", 4)},
             {"generator.g", 0, trace::make_blob("", 0)}};
  const Merged found = merged({trace_of({recording_of_batch(32)}), b, c});
  EXPECT_THAT(found.trace.state, ElementsAre(b.state[0], c.state[1]));
  EXPECT_EQ(found.state_of, 1u);
  EXPECT_THAT(found.differing, ElementsAre("model.m0.weight"));
}

TEST(MergeTest, AnotherEnvironmentIsRefused) {
  EXPECT_EQ(conflict([](trace::Trace& trace) { trace.environment[0].value = "4"; }),
            "b.tape cannot be joined with a.tape: environment threads: 2 → 4");
  EXPECT_EQ(conflict([](trace::Trace& trace) { trace.producer[1].value = "2.12.0"; }),
            "b.tape cannot be joined with a.tape: producer torch: 2.11.0 → 2.12.0");
}

TEST(MergeTest, AnotherModelIsRefused) {
  EXPECT_EQ(conflict_of_recording(
                [](trace::Recording& recording) { recording.modules[1].type = "Other"; }),
            "b.tape cannot be joined with a.tape: step train: model.m0: Layer → Other");
  EXPECT_EQ(conflict_of_recording([](trace::Recording& recording) {
              trace::Tensor& weight = recording.tensors[recording.tracked[0].tensor];
              weight.sizes = {2, 4};
            }),
            "b.tape cannot be joined with a.tape: step train: model.m0.weight: float32 [4, 4] → "
            "float32 [2, 4]");
}

TEST(MergeTest, AnotherModelOfAStepOfAnotherNameIsRefused) {
  EXPECT_EQ(conflict([](trace::Trace& trace) {
              trace.steps[0].name = "eval";
              trace::Recording& recording = trace.steps[0].recordings[0];
              recording.tensors[recording.tracked[0].tensor].sizes = {2, 4};
            }),
            "b.tape cannot be joined with a.tape: model.m0.weight: float32 [4, 4] → float32 [2, "
            "4]");
}

TEST(MergeTest, AnotherKindOfStepIsRefused) {
  EXPECT_EQ(conflict_of_recording([](trace::Recording& recording) {
              recording.inputs.push_back({"inputs[1]", {trace::Real{1}}, false, {}});
            }),
            "b.tape cannot be joined with a.tape: step train: inputs[1]: absent → a number");
  EXPECT_EQ(conflict_of_recording([](trace::Recording& recording) { recording.results.clear(); }),
            "b.tape cannot be joined with a.tape: step train: results: 1 → 0");
  EXPECT_EQ(
      conflict_of_recording([](trace::Recording& recording) { recording.updates = {"optimizer"}; }),
      "b.tape cannot be joined with a.tape: step train: updates: none → optimizer");
  EXPECT_EQ(conflict_of_recording([](trace::Recording& recording) {
              for (trace::Op& op : recording.ops) op.phase = trace::Phase::kForward;
            }),
            "b.tape cannot be joined with a.tape: step train: it goes backward → goes forward "
            "alone");
}

TEST(MergeTest, TrainingAndEvaluatingAreVariants) {
  EXPECT_EQ(conflict_of_recording([](trace::Recording& recording) {
              for (trace::Op& op : recording.ops) op.phase = trace::Phase::kForward;
              for (trace::Module& module : recording.modules) module.training = false;
            }),
            "joined");
}

TEST(MergeTest, AnotherOptimizerLayoutIsRefused) {
  const auto layout = [](const char* type, std::vector<std::string> parameters) {
    return trace::OptimizerLayout{
        "optimizer", type, true, {{{{"lr", {trace::Real{0.1}}}}, std::move(parameters)}}, {}};
  };
  trace::Trace a = trace_of({recording_of_batch(32)});
  trace::Trace b = trace_of({recording_of_batch(16)});
  a.steps[0].recordings[0].optimizers = {layout("SGD", {"model.m0.weight"})};
  const auto why = [&] { return conflict_of(a, b).value_or("joined"); };
  EXPECT_EQ(why(), "step train: optimizer: SGD → absent");
  b.steps[0].recordings[0].optimizers = {layout("Adam", {"model.m0.weight"})};
  EXPECT_EQ(why(), "step train: optimizer.type: SGD → Adam");
  b.steps[0].recordings[0].optimizers = {layout("SGD", {"model.m1.weight"})};
  EXPECT_THAT(why(), testing::StartsWith("step train: model.m0.weight: "));
  b.steps[0].recordings[0].optimizers = {layout("SGD", {"model.m0.weight"})};
  b.steps[0].recordings[0].optimizers[0].groups[0].hyperparameters[0].value = {trace::Real{0.2}};
  EXPECT_EQ(why(), "joined") << "formulas follow the learning rate";
}

TEST(MergeTest, WhatDoesOtherThingsWhenEnteredInTheSameWayIsRefused) {
  const auto remove = [](trace::Recording& recording) { test::remove_op(recording, 2); };
  EXPECT_EQ(conflict_of_recording(remove, 32),
            "b.tape cannot be joined with a.tape: step train: recording 0 and its recording 0 were "
            "entered in the same way and did different things; `steptape diff` says in what they "
            "differ");
}

TEST(MergeTest, UnlessAValueThatTheyReadDecides) {
  trace::Recording a = recording_of_batch(32);
  trace::Recording b = a;
  test::remove_op(b, 2);
  EXPECT_EQ(relation_of(a, b), Relation::kConflict);
  a.reads.push_back({0, trace::ReadUse::kChecked});
  EXPECT_EQ(relation_of(a, b), Relation::kVariants);
  a.reads[0].use = trace::ReadUse::kLookedAt;
  EXPECT_EQ(relation_of(a, b), Relation::kConflict);
}

}  // namespace
}  // namespace steptape::diff
