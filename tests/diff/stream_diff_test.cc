#include "diff/stream_diff.h"

#include <gmock/gmock.h>

#include <bit>
#include <functional>

#include "steptape/error.h"
#include "tests/diff/edit_script.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"

namespace steptape::diff {
namespace {

using test::MadeUp;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t kSeeds = 200;

/// "change scalar", "insert", ...: what an edit is, without where.
std::string words_of(const Edit& edit) {
  std::string words(name_of(edit.kind));
  for (const OpChange& change : edit.changes) words += " " + std::string(name_of(change.aspect));
  return words;
}

/// Two recordings and how they differ; the script must lead there and back.
struct Compared {
  Compared(trace::Recording first, trace::Recording second)
      : a(std::move(first)), b(std::move(second)), stream_a(a), stream_b(b) {
    validate(a);
    validate(b);
    found = compare(stream_a, stream_b);
    const EditScript script = script_of(found, stream_a, stream_b);
    EXPECT_EQ(apply_script(script, ops_of(stream_a)), ops_of(stream_b));
    const EditScript back = script_of(compare(stream_b, stream_a), stream_b, stream_a);
    EXPECT_EQ(inverse(script), back);
    EXPECT_EQ(apply_script(back, ops_of(stream_b)), ops_of(stream_a));
    EXPECT_EQ(found.edits.empty(), same_stream(ops_of(stream_a), ops_of(stream_b)));
  }
  std::vector<std::string> edits() const {
    std::vector<std::string> words;
    for (const Edit& edit : found.edits) words.push_back(words_of(edit));
    return words;
  }

  trace::Recording a, b;
  OpStream stream_a, stream_b;
  StreamDiff found;
};

/// Makes one edit of the recording at random; false where the op that was drawn cannot have it.
using MakeEdit = std::function<bool(trace::Recording&, std::mt19937_64&)>;

trace::Index draw(const trace::Recording& recording, std::mt19937_64& random) {
  return std::uniform_int_distribution<trace::Index>(
      0, static_cast<trace::Index>(recording.ops.size() - 1))(random);
}

bool insert_any(trace::Recording& recording, std::mt19937_64& random) {
  const trace::Index at = draw(recording, random);
  trace::Op op = recording.ops[draw(recording, random)];
  op.module = recording.ops[at].module;
  op.call = recording.ops[at].call;
  op.phase = recording.ops[at].phase;
  test::insert_op(recording, at, std::move(op));
  return true;
}

bool remove_any(trace::Recording& recording, std::mt19937_64& random) {
  test::remove_op(recording, draw(recording, random));
  return true;
}

bool duplicate_any(trace::Recording& recording, std::mt19937_64& random) {
  const trace::Index at = draw(recording, random);
  test::insert_op(recording, at + 1, trace::Op(recording.ops[at]));
  return true;
}

bool move_any(trace::Recording& recording, std::mt19937_64& random) {
  const trace::Index at = draw(recording, random);
  const auto [down, up] = test::way_of(recording, at);
  const int way = std::uniform_int_distribution<int>(down, up)(random);
  if (way == 0) return false;
  test::move_op(recording, at, at + static_cast<trace::Index>(way));
  return true;
}

bool rename_any(trace::Recording& recording, std::mt19937_64& random) {
  trace::Op& op = recording.ops[draw(recording, random)];
  op.op = test::add_operator(recording, "aten::renamed", op.op);
  return true;
}

bool flip_scalar(trace::Recording& recording, std::mt19937_64& random) {
  trace::Real* real = test::last_real(recording.ops[draw(recording, random)]);
  if (real == nullptr) return false;
  real->value = std::bit_cast<double>(std::bit_cast<std::uint64_t>(real->value) ^ 1U);
  return true;
}

bool change_dtype(trace::Recording& recording, std::mt19937_64& random) {
  trace::TensorRef* tensor = test::first_tensor(recording.ops[draw(recording, random)]);
  tensor->id = test::copy_tensor(recording, tensor->id);
  recording.tensors[tensor->id].dtype = trace::DType::kInt32;
  return true;
}

bool change_shape(trace::Recording& recording, std::mt19937_64& random) {
  trace::TensorRef* tensor = test::first_tensor(recording.ops[draw(recording, random)]);
  tensor->id = test::copy_tensor(recording, tensor->id);
  trace::Tensor& copy = recording.tensors[tensor->id];
  copy.sizes[0] /= 2;
  return true;
}

bool change_layout(trace::Recording& recording, std::mt19937_64& random) {
  trace::TensorRef* tensor = test::first_tensor(recording.ops[draw(recording, random)]);
  tensor->id = test::copy_tensor(recording, tensor->id);
  trace::Tensor& copy = recording.tensors[tensor->id];
  copy.strides = {1, copy.sizes[0]};
  return true;
}

bool change_overload(trace::Recording& recording, std::mt19937_64& random) {
  trace::Op& op = recording.ops[draw(recording, random)];
  op.op = test::add_operator(recording, recording.operators[op.op].name, op.op);
  recording.operators.back().overload = "other";
  return true;
}

struct OneEdit {
  const char* name;
  MakeEdit make;
  std::string told;
};
void PrintTo(const OneEdit& edit, std::ostream* out) { *out << edit.name; }

class OneEditTest : public testing::TestWithParam<OneEdit> {};

TEST_P(OneEditTest, IsFoundAloneInEveryRecording) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const trace::Recording a = test::make_up({.seed = seed});
    trace::Recording b = a;
    while (!GetParam().make(b, random)) b = a;
    const Compared compared(a, std::move(b));
    ASSERT_THAT(compared.edits(), ElementsAre(GetParam().told)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(StreamDiff, OneEditTest,
                         testing::Values(OneEdit{"Insert", insert_any, "insert"},
                                         OneEdit{"Remove", remove_any, "remove"},
                                         OneEdit{"Duplicate", duplicate_any, "insert"},
                                         OneEdit{"Move", move_any, "move"},
                                         OneEdit{"Rename", rename_any, "change operator"},
                                         OneEdit{"Overload", change_overload, "change operator"},
                                         OneEdit{"ScalarBit", flip_scalar, "change scalar"},
                                         OneEdit{"DType", change_dtype, "change dtype"},
                                         OneEdit{"Shape", change_shape, "change shape"},
                                         OneEdit{"Layout", change_layout, "change layout"}),
                         [](const auto& info) { return info.param.name; });

TEST(StreamDiffTest, SeveralEditsCostNoMoreThanWasDone) {
  const std::vector<MakeEdit> all = {insert_any,  remove_any,   move_any,    rename_any,
                                     flip_scalar, change_dtype, change_shape};
  std::size_t dearer = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const trace::Recording a = test::make_up({.seed = seed});
    trace::Recording b = a;
    std::size_t made = 0;
    while (made < 5) made += all[random() % all.size()](b, random) ? 1 : 0;
    const Compared compared(a, std::move(b));
    dearer += compared.found.edits.size() > made ? 1 : 0;
  }
  EXPECT_LE(dearer, kSeeds / 100);
}

TEST(StreamDiffTest, RecordingsThatShareNothingCanBeTurnedIntoEachOther) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Compared compared(test::make_up({.seed = seed}),
                            test::make_up({.seed = seed + 1000, .modules = 9, .batch = 8}));
    EXPECT_THAT(compared.found.edits, testing::Not(IsEmpty()));
  }
}

TEST(StreamDiffTest, EqualRecordingsHaveNoEdits) {
  const Compared compared(test::train_recording(), test::train_recording());
  EXPECT_THAT(compared.found.edits, IsEmpty());
  EXPECT_THAT(compared.found.alignment.pairs, SizeIs(5));
}

TEST(StreamDiffTest, OtherNumbersOfTensorsAndBuffersAreNoDifference) {
  const trace::Recording a = test::make_up({.seed = 1});
  trace::Recording b = a;
  const auto shift = [&](trace::Value& value) {
    auto* tensor = std::get_if<trace::TensorRef>(&value.data);
    if (tensor != nullptr) tensor->id += 1;
  };
  b.tensors.insert(b.tensors.begin(), b.tensors[0]);
  b.buffers.insert(b.buffers.begin(), b.buffers[0]);
  for (std::size_t i = 1; i < b.tensors.size(); ++i) ++b.tensors[i].buffer;
  for (trace::Op& op : b.ops) {
    std::ranges::for_each(op.inputs, shift);
    std::ranges::for_each(op.outputs, shift);
  }
  EXPECT_THAT(Compared(a, std::move(b)).found.edits, IsEmpty());
}

TEST(StreamDiffTest, AnInsertedModuleIsInsertedAloneWhereNobodyReadsIt) {
  const trace::Recording a = test::make_up({.seed = 3});
  trace::Recording b = a;
  test::insert_module(b, 7, 3);
  const Compared compared(a, std::move(b));
  EXPECT_THAT(compared.edits(), ElementsAre("insert", "insert", "insert"));
  const auto stats = stats_of(compared.found, compared.stream_a, compared.stream_b);
  EXPECT_EQ(stats.back(), (ModuleStat{"model.inserted", 0, 3, 0, 3, 0, 0}));
}

TEST(StreamDiffTest, WhoReadsAnInsertedModuleIsChanged) {
  const trace::Recording a = test::make_up({.seed = 3, .modules = 2});
  trace::Recording b = a;
  const trace::Index last = 4;  // of the first module
  const trace::TensorId before = std::get<trace::TensorRef>(b.ops[last].outputs[0].data).id;
  test::insert_module(b, last, 1);
  const trace::TensorId behind = std::get<trace::TensorRef>(b.ops[last + 1].outputs[0].data).id;
  std::size_t readers = 0;
  for (trace::Index i = last + 2; i < b.ops.size(); ++i) {
    bool reads = false;
    for (trace::Value& value : b.ops[i].inputs) {
      if (value != trace::Value{trace::TensorRef{before}}) continue;
      value = {trace::TensorRef{behind}};
      reads = true;
    }
    readers += reads ? 1 : 0;
  }
  const Compared compared(a, std::move(b));
  ASSERT_EQ(compared.found.edits.size(), 1 + readers);
  EXPECT_EQ(compared.edits()[0], "insert");
  EXPECT_EQ(compared.found.edits[1].changes[0].found, "result of op 5 aten::mul.Tensor");
}

TEST(StreamDiffTest, AnotherBatchIsAChangeOfShapesAlone) {
  const Compared compared(test::make_up({.seed = 5, .batch = 32}),
                          test::make_up({.seed = 5, .batch = 64}));
  for (const Edit& edit : compared.found.edits) {
    for (const OpChange& change : edit.changes) EXPECT_EQ(change.aspect, OpAspect::kShape);
  }
  EXPECT_EQ(compared.found.alignment.pairs.size(), compared.a.ops.size());
}

TEST(StreamDiffTest, ARenamedModuleIsPairedBySequence) {
  const trace::Recording a = test::make_up({.seed = 5});
  trace::Recording b = a;
  b.modules[2].path = "model.other";
  const Compared compared(a, std::move(b));
  EXPECT_EQ(compared.found.alignment.pairs.size(), compared.a.ops.size());
  for (const Edit& edit : compared.found.edits) {
    EXPECT_EQ(words_of(edit), "change module");
    EXPECT_EQ(edit.matched_by, MatchedBy::kSequence);
  }
}

TEST(StreamDiffTest, ModulesInAnotherOrderMoveAndArePairedByTheirCalls) {
  const trace::Recording a = test::make_up({.seed = 5, .ops_a_module = 2});
  trace::Recording b = a;
  // the updates of the first two modules change places
  std::swap(b.ops[b.ops.size() - 6], b.ops[b.ops.size() - 5]);
  const Compared compared(a, std::move(b));
  EXPECT_THAT(compared.edits(), ElementsAre("move"));
}

TEST(StreamDiffTest, ANumberThatTheHostMadeIsAScalar) {
  const trace::Recording a = test::train_recording();
  trace::Recording b = a;
  b.ops[2].inputs[1] = {trace::TensorRef{3}};
  trace::Recording c = b;
  c.buffers[3].content = trace::make_blob("\0\0\0\x40", 4);
  const Compared compared(b, std::move(c));
  ASSERT_THAT(compared.edits(), ElementsAre("change scalar"));
  EXPECT_EQ(compared.found.edits[0].changes[0].text(), "other: 1.0 → 2.0");
}

TEST(StreamDiffTest, NumbersThatFollowTheSameFormulaAreNoDifference) {
  const trace::Recording a = test::numbers_trace().steps[0].recordings[0];
  trace::Recording b = a;
  b.ops[0].inputs[1] = {trace::Real{-0.5}};
  EXPECT_THAT(Compared(a, b).found.edits, IsEmpty());
  b.scalars.erase(b.scalars.begin());
  EXPECT_EQ(Compared(a, b).found.edits[0].changes[0].text(), "other: formula → -0.5");
}

TEST(EditScriptTest, DoesNotApplyToAnotherStream) {
  const trace::Recording a = test::make_up({.seed = 1});
  trace::Recording b = a;
  test::remove_op(b, 3);
  const Compared compared(a, std::move(b));
  const EditScript script = script_of(compared.found, compared.stream_a, compared.stream_b);
  EXPECT_THROW(apply_script(script, ops_of(compared.stream_b)), Error);
  EXPECT_THROW(apply_script(script, {}), Error);
}

TEST(StreamDiffTest, AnotherViewThatAnOpWritesIsAChange) {
  trace::Recording b = test::train_recording();
  trace::Op& op = b.ops[3];
  const trace::TensorId view = test::copy_tensor(b, op.unannotated_writes.at(0));
  b.tensors[view].conj = true;
  op.unannotated_writes[0] = view;
  const Compared found(test::train_recording(), b);
  EXPECT_THAT(found.edits(), ElementsAre("change writes"));
  EXPECT_EQ(found.found.edits[0].changes[0].found,
            "optimizer.state[model.fc1.weight].momentum_buffer float32 [2, 2] conj");
}

}  // namespace
}  // namespace steptape::diff
