#include "diff/diff.h"

#include <gmock/gmock.h>

#include <functional>

#include "tests/trace/fake_run.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"
#include "trace/compare/compare.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> found(const Diff& diff) {
  std::vector<std::string> words;
  const auto add = [&](const Findings& findings) {
    for (const Section section : sections()) {
      for (const trace::Finding& finding : findings.of(section)) {
        words.push_back(std::string(name_of(section)) + " " + finding.text());
      }
    }
  };
  add(diff.findings);
  for (const StepDiff& step : diff.steps) {
    add(step.findings);
    for (const RecordingDiff& recording : step.recordings) {
      for (const Edit& edit : recording.stream.edits) {
        words.push_back("structure " + std::string(name_of(edit.kind)));
      }
      add(recording.findings);
    }
  }
  return words;
}

/// One thing changed in the trace of the sample, and all that is told of it.
struct DiffChange {
  std::string name;
  std::function<void(trace::Trace&)> make;
  std::vector<std::string> told;
};
void PrintTo(const DiffChange& change, std::ostream* out) { *out << change.name; }

class DiffTest : public testing::TestWithParam<DiffChange> {};

TEST_P(DiffTest, IsToldOnceInItsSection) {
  const trace::Trace a = test::train_trace();
  trace::Trace b = a;
  GetParam().make(b);
  EXPECT_EQ(found(compare(a, b)), GetParam().told);
}

trace::Recording& first(trace::Trace& trace) { return trace.steps[0].recordings[0]; }

INSTANTIATE_TEST_SUITE_P(
    Sections, DiffTest,
    testing::Values(
        DiffChange{"Nothing", [](trace::Trace&) {}, {}},
        DiffChange{"Producer",
                   [](trace::Trace& t) { t.producer[1].value = "2.12.0"; },
                   {"environment producer torch: 2.11.0 → 2.12.0"}},
        DiffChange{"Environment",
                   [](trace::Trace& t) { t.environment.clear(); },
                   {"environment environment threads: 2 → absent"}},
        DiffChange{"Run", [](trace::Trace& t) { t.run[0].value = "south"; }, {}},
        DiffChange{"Seed",
                   [](trace::Trace& t) {
                     t.run.push_back({"seed", "2"});
                   },
                   {"environment run seed: absent → 2"}},
        DiffChange{"SavedState", [](trace::Trace& t) { t.state.clear(); }, {}},
        DiffChange{"Place",
                   [](trace::Trace& t) { t.steps[0].place = "train.cc:42"; },
                   {"place wrap: train.cc:41 → train.cc:42"}},
        DiffChange{"Scope",
                   [](trace::Trace& t) { first(t).scopes[0] = "other"; },
                   {"place op 0: forward → other"}},
        DiffChange{"Step",
                   [](trace::Trace& t) {
                     t.steps.push_back({"eval", "", {}});
                   },
                   {"structure step eval: absent → recorded"}},
        DiffChange{"Recording",
                   [](trace::Trace& t) { t.steps[0].recordings.clear(); },
                   {"structure recording 0: agreed → absent"}},
        DiffChange{"Status",
                   [](trace::Trace& t) { first(t).status = trace::Status::kTrusted; },
                   {"environment status: agreed → trusted"}},
        DiffChange{"Op", [](trace::Trace& t) { first(t).ops.pop_back(); }, {"structure remove"}},
        DiffChange{"Result",
                   [](trace::Trace& t) { first(t).results.clear(); },
                   {"structure results[0]: float32 [2, 2] → absent"}},
        DiffChange{"GradientAtExit",
                   [](trace::Trace& t) { first(t).exit_gradients[0].tensor = trace::kNoTensor; },
                   {"structure model.fc1.weight.grad at exit: float32 [2, 2] → undefined"}},
        DiffChange{
            "Seek",
            [](trace::Trace& t) { first(t).seeks[0].is_earlier = true; },
            {"structure generator default: set to 00000000000000030000000000000004 → set back"}},
        DiffChange{"Effect",
                   [](trace::Trace& t) {
                     first(t).effects.push_back({"host.mode", "train", ""});
                   },
                   {"structure effect host.mode: absent → train"}},
        DiffChange{"Hyperparameter",
                   [](trace::Trace& t) {
                     first(t).optimizers[0].groups[0].hyperparameters[1].value = {true};
                   },
                   {"optimizer optimizer.param_groups[0].nesterov: false → true"}},
        DiffChange{
            "Option",
            [](trace::Trace& t) { first(t).modules[1].options[0].value = {std::int64_t{3}}; },
            {"modules model.fc1.in_features: 2 → 3"}},
        DiffChange{"Training",
                   [](trace::Trace& t) { first(t).modules[1].training = true; },
                   {"modules model.fc1.training: false → true"}},
        DiffChange{"Module",
                   [](trace::Trace& t) {
                     first(t).modules.push_back({"model.drop", "Dropout", true, {}, {}});
                   },
                   {"modules model.drop: absent → Dropout"}},
        DiffChange{"Ambient",
                   [](trace::Trace& t) { first(t).ambient[0].value = "off"; },
                   {"guards ambient.grad_mode: on → off"}},
        DiffChange{"Argument",
                   [](trace::Trace& t) { first(t).inputs[1].value = {std::int64_t{4}}; },
                   {"guards inputs[1]: 3 → 4"}},
        DiffChange{"Refusal",
                   [](trace::Trace& t) { first(t).refusals.clear(); },
                   {"refusals host_read: item() reads t2 → absent"}}),
    [](const auto& info) { return info.param.name; });

TEST(DiffOfTracesTest, FormulasAreComparedWhereOpsArePaired) {
  const trace::Trace a = test::numbers_trace();
  trace::Trace b = a;
  trace::Recording& changed = b.steps[0].recordings[0];
  changed.formulas[0] = trace::leaf(0);
  changed.advances[0].by = 2;
  changed.predicates.pop_back();
  EXPECT_THAT(
      found(compare(a, b)),
      ElementsAre("formulas op 0 aten::mul.Scalar other: -optimizer.param_groups[0].lr → "
                  "optimizer.param_groups[0].lr",
                  "formulas condition -optimizer.param_groups[0].lr: zero → absent",
                  "formulas optimizer.state[model.fc1.weight].step (advance): by 1 → by 2"));
}

TEST(DiffOfTracesTest, ConstantsAreComparedByTheirBytes) {
  trace::Trace a = test::train_trace();
  trace::Recording& recording = first(a);
  recording.buffers[3] = recording.buffers[1];
  recording.buffers[3].role = trace::Role::kConstant;
  recording.buffers[3].path = "outside[0]";
  recording.buffers[3].content = trace::make_blob("0123456789abcdef", 16);
  recording.tensors[3] = recording.tensors[1];
  recording.tensors[3].buffer = 3;
  recording.ops[2].inputs[1] = {trace::TensorRef{3}};
  trace::Trace b = a;
  first(b).buffers[3].content = trace::make_blob("0123456789abcdeF", 16);
  const std::vector<std::string> words = found(compare(a, b));
  ASSERT_EQ(words.size(), 1u);
  EXPECT_THAT(words[0], testing::StartsWith("constants outside[0]: 16 bytes, digest "));
}

TEST(DiffOfTracesTest, CallsInAnotherOrderAreToldWithTheModules) {
  trace::Trace a, b;
  a.steps.push_back({"train", "", {test::make_up({.seed = 4})}});
  b = a;
  first(b).module_access[1].first_op = 0;
  std::swap(first(b).module_access[0], first(b).module_access[1]);
  first(b).module_access[1].first_op = 1;
  EXPECT_THAT(found(compare(a, b)), testing::Contains(testing::StartsWith("modules call model.m")));
}

TEST(DiffOfTracesTest, AWarmUpBesideAVariantDoesNotCount) {
  trace::Trace a;
  const trace::Recording variant = test::train_recording();
  trace::Recording warm_up = variant;
  warm_up.status = trace::Status::kWarmUp;
  a.steps.push_back({"train", "", {warm_up, variant}});
  trace::Trace b = a;
  first(b).ops.pop_back();
  const Diff beside = compare(a, b);
  EXPECT_EQ(beside.count(Section::kStructure), 0u);
  EXPECT_EQ(beside.steps[0].recordings[0].stream.edits.size(), 1u);
  a.steps[0].recordings.pop_back();
  b.steps[0].recordings.pop_back();
  EXPECT_EQ(compare(a, b).count(Section::kStructure), 1u);
}

TEST(DiffOfTracesTest, RecordingsArePairedByEntryThenShapesThenOrder) {
  trace::Step a{"train", "", {}};
  const trace::Recording variant = test::train_recording();
  trace::Recording other_mode = variant;
  other_mode.modules[1].training = true;
  trace::Recording other_shape = variant;
  other_shape.tensors[1].sizes = {1, 2};
  a.recordings = {variant, other_mode};
  const trace::Step b{"train", "", {other_shape, variant}};
  EXPECT_THAT(pair_recordings(a, b), ElementsAre(RecordingPair{0, 1, PairedBy::kEntry},
                                                 RecordingPair{1, 0, PairedBy::kPosition}));
  const trace::Step c{"train", "", {other_shape, other_mode}};
  EXPECT_THAT(pair_recordings({"train", "", {variant}}, c),
              ElementsAre(RecordingPair{0, 1, PairedBy::kShapes}));
}

TEST(DiffOfTracesTest, OneStepIsComparedAlone) {
  trace::Trace a = test::train_trace();
  a.steps.push_back({"eval", "", {}});
  trace::Trace b = test::train_trace();
  first(b).ops.pop_back();
  EXPECT_THAT(found(compare(a, b, "eval")), ElementsAre("structure step eval: recorded → absent"));
}

TEST(DiffOfTracesTest, WhatOpsOfAWarmUpLeftCounts) {
  trace::Recording warm_up = test::make_up({.seed = 4});
  warm_up.status = trace::Status::kWarmUp;
  trace::Recording variant = test::make_up({.seed = 4});
  test::run_fake(variant);
  trace::Trace a, b;
  test::run_fake(warm_up);
  a.steps = {{"train", "", {warm_up, variant}}};
  test::run_fake(warm_up, {.flipped = {3}});
  b.steps = {{"train", "", {warm_up, variant}}};
  const Diff found = compare(a, b);
  ASSERT_TRUE(found.steps[0].recordings[0].is_beside);
  EXPECT_GT(found.count(Section::kNumerics), 0u);
  EXPECT_EQ(found.first_numeric().recording, &found.steps[0].recordings[0]);
}

TEST(DiffOfTracesTest, SectionsHaveNames) {
  for (const Section section : sections()) EXPECT_EQ(section_of(name_of(section)), section);
}

TEST(DiffOfTracesTest, ModulesMayHaveNamesThatAreNoPaths) {
  trace::Trace a = test::train_trace();
  a.steps[0].recordings[0].modules[1].path = "model.[";
  trace::Trace b = a;
  b.steps[0].recordings[0].module_access.pop_back();
  const std::vector<trace::Finding> found =
      compare(a, b).steps[0].recordings[0].findings.of(Section::kModules);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text(), "call model.[@2: after model.[ → absent");
}

}  // namespace
}  // namespace steptape::diff
