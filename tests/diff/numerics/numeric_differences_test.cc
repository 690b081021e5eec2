#include "diff/numerics/numeric_differences.h"

#include <gmock/gmock.h>

#include <bit>
#include <random>

#include "diff/diff.h"
#include "diff/numerics/numeric_words.h"
#include "tests/trace/fake_run.h"
#include "tests/trace/made_up.h"
#include "tests/trace/text/text_parse.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kSeeds = 60;

/// Two recordings and in which bits they differ; the other way round it must be the same.
struct Compared {
  Compared(const trace::Recording& first, const trace::Recording& second)
      : a(first), b(second), stream_a(a), stream_b(b) {
    validate(a);
    validate(b);
    alignment = align(stream_a, stream_b);
    found = numeric_differences(stream_a, stream_b, alignment);
    expect_the_same_the_other_way_round();
  }

  void expect_the_same_the_other_way_round() const {
    NumericDifferences back = numeric_differences(stream_b, stream_a, align(stream_b, stream_a));
    EXPECT_EQ(back.compared, found.compared);
    for (NumericOp& op : back.ops) {
      std::swap(op.a, op.b);
      std::swap(op.input.a, op.input.b);
    }
    for (EnteredBuffer& buffer : back.entered) std::swap(buffer.a, buffer.b);
    std::ranges::sort(back.ops, {}, &NumericOp::a);
    std::ranges::sort(back.entered, {}, &EnteredBuffer::a);
    EXPECT_EQ(back.ops, found.ops);
    EXPECT_EQ(back.entered, found.entered);
  }

  std::size_t count(NumericStatus status) const { return found.count(status); }
  /// "op 3 aten::mm in model.fc1: inputs are equal"
  std::vector<std::string> words() const {
    std::vector<std::string> words;
    for (const NumericOp& op : found.ops) {
      words.push_back(std::string(name_of(op.status)) + " " +
                      words_of_place(op, stream_a, stream_b) + ": " +
                      words_of_cause(op, stream_a, stream_b));
    }
    return words;
  }

  trace::Recording a, b;
  OpStream stream_a, stream_b;
  Alignment alignment;
  NumericDifferences found;
};

/// A recording with views and ops in place, run, and where one bit may differ.
class MadeUpRuns : public testing::Test {
 protected:
  explicit MadeUpRuns() = default;

  void make(std::uint64_t seed) {
    random_.seed(seed);
    a_ = test::make_up({.seed = seed, .modules = 4, .batch = 8, .has_aliases = true});
    b_ = a_;
  }
  trace::Index draw() {
    return std::uniform_int_distribution<trace::Index>(
        0, static_cast<trace::Index>(a_.ops.size() - 1))(random_);
  }
  /// An op whose bits are its own: no view.
  trace::Index draw_maker() {
    trace::Index op = draw();
    while (a_.operator_of(a_.ops[op]).name == "aten::slice") op = draw();
    return op;
  }
  /// Op `flipped` of `b_` leaves another bit.
  Compared compare(trace::Index flipped) {
    test::run_fake(a_);
    test::run_fake(b_, {.flipped = {flipped}});
    return {a_, b_};
  }

  std::mt19937_64 random_;
  trace::Recording a_, b_;
};

TEST_F(MadeUpRuns, EqualRunsAreEqual) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    make(seed);
    test::run_fake(a_);
    const Compared compared(a_, a_);
    EXPECT_EQ(compared.found.compared, a_.ops.size());
    EXPECT_EQ(compared.found.count(), 0u);
  }
}

/// The flipped op alone is the origin; whatever else differs received it.
void expect_origin(const Compared& compared, trace::Index a, trace::Index b) {
  EXPECT_EQ(compared.count(NumericStatus::kOrigin), 1u);
  EXPECT_EQ(compared.count(NumericStatus::kUnknown), 0u);
  const NumericOp* first = compared.found.first();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->status, NumericStatus::kOrigin);
  EXPECT_EQ(first->a, a);
  EXPECT_EQ(first->b, b);
  EXPECT_THAT(compared.found.entered, IsEmpty());
}

TEST_F(MadeUpRuns, AFlippedBitIsTheOriginAndAllElseReceives) {
  std::size_t receivers = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    make(seed);
    const trace::Index op = draw_maker();
    const Compared compared = compare(op);
    expect_origin(compared, op, op);
    receivers += compared.count(NumericStatus::kReceiver);
    for (trace::Index i = 0; i < a_.ops.size(); ++i) {
      const bool is_told = std::ranges::count(compared.found.ops, i, &NumericOp::a) == 1;
      EXPECT_EQ(is_told, a_.op_digests[i] != b_.op_digests[i]) << "op " << i;
    }
  }
  EXPECT_GT(receivers, 5 * kSeeds);
}

TEST_F(MadeUpRuns, AnOpThatIsInsertedDoesNotMoveTheOrigin) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    make(seed);
    const trace::Index at = draw();
    trace::Op op;
    op.op = test::add_operator(b_, "aten::inserted", 0);
    op.module = b_.ops[at].module;
    op.call = b_.ops[at].call;
    op.phase = b_.ops[at].phase;
    op.inputs = {b_.ops[at].inputs[0]};
    const trace::TensorId result =
        test::copy_tensor(b_, std::get<trace::TensorRef>(op.inputs[0].data).id);
    b_.buffers.push_back(b_.buffers[b_.tensors[result].buffer]);
    b_.buffers.back().path.clear();
    b_.buffers.back().role = trace::Role::kTemporary;
    b_.tensors[result].buffer = static_cast<trace::BufferId>(b_.buffers.size() - 1);
    op.outputs = {{trace::TensorRef{result}}};
    test::insert_op(b_, at, std::move(op));
    const trace::Index flipped = draw_maker();
    expect_origin(compare(flipped < at ? flipped : flipped + 1), flipped,
                  flipped < at ? flipped : flipped + 1);
  }
}

TEST_F(MadeUpRuns, AnOpThatIsMovedDoesNotMoveTheOrigin) {
  std::size_t moved = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    make(seed);
    const trace::Index at = draw();
    const auto [down, up] = test::way_of(b_, at);
    if (down == 0 && up == 0) continue;
    const trace::Index to = static_cast<trace::Index>(static_cast<int>(at) + (up > 0 ? up : down));
    test::move_op(b_, at, to);
    test::run_fake(a_);
    test::run_fake(b_);
    EXPECT_EQ(Compared(a_, b_).found.count(), 0u);
    const trace::Index flipped = draw_maker();
    const trace::Index left = flipped > at ? flipped - 1 : flipped;
    const trace::Index found = flipped == at ? to : left < to ? left : left + 1;
    expect_origin(compare(found), flipped, found);
    ++moved;
  }
  EXPECT_GT(moved, 5u);
}

TEST_F(MadeUpRuns, OtherInputsMakeReceiversAndNoOrigin) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    make(seed);
    test::run_fake(a_);
    test::run_fake(b_, {.entered = {{"inputs[0]", 7}}});
    const Compared compared(a_, b_);
    EXPECT_EQ(words_of_entered(compared.found, a_, 2), "inputs[0]");
    EXPECT_EQ(compared.count(NumericStatus::kOrigin), 0u);
    EXPECT_EQ(compared.count(NumericStatus::kUnknown), 0u);
    EXPECT_EQ(compared.found.count(), compared.found.ops.size() + 1);
  }
}

TEST_F(MadeUpRuns, AnotherScalarIsReceivedByItsOp) {
  make(3);
  trace::Index op = 0;
  while (test::last_real(b_.ops[op]) == nullptr) ++op;
  test::last_real(b_.ops[op])->value += 1;
  test::run_fake(a_);
  test::run_fake(b_);
  const Compared compared(a_, b_);
  EXPECT_EQ(compared.count(NumericStatus::kOrigin), 0u);
  const NumericOp* first = compared.found.first();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->a, op);
  EXPECT_EQ(first->input.kind, InputKind::kScalar);
  const InputWords input = words_of_input(*first, compared.stream_a, compared.stream_b);
  EXPECT_EQ(input.name, "alpha");
  EXPECT_NE(input.a, input.b);
}

TEST_F(MadeUpRuns, WhatOpsLeaveIsCountedByModule) {
  make(5);
  const trace::Index op = draw_maker();
  const Compared compared = compare(op);
  std::size_t all = 0;
  for (const NumericStat& stat : stats_of(compared.found, a_)) {
    const trace::Index module = a_.ops[op].module;
    const std::string path = module == trace::kNone ? "" : a_.modules[module].path;
    EXPECT_EQ(stat.origins, stat.module == path ? 1u : 0u);
    all += stat.origins + stat.receivers + stat.unknown;
  }
  EXPECT_EQ(all, compared.found.count());
}

TEST_F(MadeUpRuns, WhatAControlShowsTooIsNoise) {
  make(6);
  const Compared noise = compare(2);
  const trace::Recording control = b_;
  trace::Index own = draw_maker();
  while (noise.a.op_digests[own] != noise.b.op_digests[own]) own = draw_maker();
  test::run_fake(b_, {.flipped = {2, own}});
  trace::Trace a, b, again;
  a.steps = {{"train", "", {a_}}};
  b.steps = {{"train", "", {b_}}};
  again.steps = {{"train", "", {control}}};
  const NumericDifferences plain = diff::compare(a, b).steps[0].recordings[0].numerics;
  EXPECT_EQ(plain.noisy(), 0u);
  EXPECT_EQ(plain.count(NumericStatus::kOrigin), 2u);
  const NumericDifferences marked =
      diff::compare(a, b, {}, std::vector{again}).steps[0].recordings[0].numerics;
  EXPECT_EQ(marked.noisy(), noise.found.count());
  EXPECT_EQ(marked.count(NumericStatus::kOrigin), 1u);
  ASSERT_NE(marked.first(), nullptr);
  EXPECT_EQ(marked.first()->a, own);
  EXPECT_EQ(diff::compare(a, again, {}, std::vector{again}).count(Section::kNumerics), 0u);
  EXPECT_EQ(diff::compare(a, again, {}, std::vector{a, again}).count(Section::kNumerics), 0u);
}

/// Recordings written by hand: "@7" stands for a digest.
class WrittenRuns : public testing::Test {
 protected:
  static trace::Recording recording(const std::string& ops,
                                    const std::string& head = "recording agreed") {
    const std::string text = head + R"tape(
  operator o0 "aten::relu" "" "aten::relu(Tensor self) -> Tensor"
  operator o1 "aten::sin" "" "aten::sin(Tensor self) -> Tensor"
  operator o2 "aten::slice" "Tensor" "aten::slice.Tensor(Tensor(a) self) -> Tensor(a)"
  operator o3 "aten::mul_" "Scalar" "aten::mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)"
  operator o4 "aten::empty" "memory_format" "aten::empty.memory_format(SymInt[] size) -> Tensor"
  operator o5 "aten::bernoulli_" "float" "aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)"
  operator o6 "aten::_local_scalar_dense" "" "aten::_local_scalar_dense(Tensor self) -> Scalar"
  operator o7 "aten::cat" "" "aten::cat(Tensor[] tensors) -> Tensor"
  operator o8 "aten::zeros_like" "" "aten::zeros_like(Tensor self) -> Tensor"
  module m0 "model" "Net" training
  scope s0 "outer > train.py:41"
  buffer b0 16 bytes cpu parameter "w" address 0 digest @100
  buffer b1 16 bytes cpu temporary "" address 0
  buffer b2 16 bytes cpu temporary "" address 0
  buffer b3 16 bytes cpu temporary "" address 0
  tensor t0 in b0 float32 sizes [4] strides [1] offset 0
  tensor t1 in b1 float32 sizes [4] strides [1] offset 0
  tensor t2 in b1 float32 sizes [2] strides [1] offset 0
  tensor t3 in b1 float32 sizes [2] strides [1] offset 2
  tensor t4 in b2 float32 sizes [4] strides [1] offset 0
  tensor t5 in b3 float32 sizes [2] strides [1] offset 0
  tensor t6 in b1 float32 sizes [2] strides [2] offset 0
)tape" + ops;
    return trace::parse_recording(trace::with_digests(text));
  }
  static std::vector<std::string> words(const std::string& a, const std::string& b) {
    return Compared(recording(a), recording(b)).words();
  }
};

TEST_F(WrittenRuns, PlaceAndCauseAreNamed) {
  const std::string start = "  op 0: t1 = aten::relu(t0)  forward module m0 scope s0 digest ";
  const std::string end = "\n  op 1: t4 = aten::sin(t1)  backward module m0 call 2 digest ";
  EXPECT_THAT(words(start + "@1" + end + "@2\n", start + "@3" + end + "@4\n"),
              ElementsAre("origin op 0 aten::relu in model, outer > train.py:41: inputs are equal",
                          "receiver op 1 aten::sin in model@2, backward: self differs: op 0 "
                          "aten::relu"));
}

TEST_F(WrittenRuns, AWriteOfOtherBytesIsNoInput) {
  const std::string made = "  op 0: t1 = aten::relu(t0)  forward digest @1\n";
  const auto run = [&](const std::string& written, const std::string& read, int left) {
    return made + "  op 1: t2 = aten::mul_.Scalar(t2, 2)  forward digest @" + written +
           "\n  op 2: t5 = aten::sin(" + read + ")  forward digest @" + std::to_string(left) + "\n";
  };
  EXPECT_THAT(words(run("2", "t3", 5), run("3", "t3", 6)),
              ElementsAre("origin op 1 aten::mul_.Scalar: inputs are equal",
                          "origin op 2 aten::sin: inputs are equal"));
  EXPECT_THAT(words(run("2", "t2", 5), run("3", "t2", 6)),
              ElementsAre("origin op 1 aten::mul_.Scalar: inputs are equal",
                          "receiver op 2 aten::sin: self differs: op 1 aten::mul_.Scalar"));
  // every other element, of which the op before wrote one
  EXPECT_THAT(words(run("2", "t6", 5), run("3", "t6", 6)),
              ElementsAre("origin op 1 aten::mul_.Scalar: inputs are equal",
                          "receiver op 2 aten::sin: self differs: op 1 aten::mul_.Scalar"));
}

TEST_F(WrittenRuns, AnEqualViewOfWhatDiffersIsAnEqualInput) {
  const auto run = [](int base, int read) {
    return "  op 0: t1 = aten::relu(t0)  forward digest @" + std::to_string(base) +
           "\n  op 1: t2 = aten::slice.Tensor(t1)  forward digest @2\n"
           "  op 2: t5 = aten::sin(t2)  forward digest @" +
           std::to_string(read) + "\n";
  };
  EXPECT_THAT(words(run(1, 3), run(8, 9)), ElementsAre("origin op 0 aten::relu: inputs are equal",
                                                       "origin op 2 aten::sin: inputs are equal"));
}

TEST_F(WrittenRuns, WithoutADigestAtEntryNoOriginIsClaimed) {
  const std::string run = "  op 0: t1 = aten::relu(t0)  forward digest ";
  trace::Recording a = recording(run + "@1\n");
  trace::Recording b = recording(run + "@2\n");
  b.buffers[0].digest.reset();
  EXPECT_THAT(Compared(a, b).words(),
              ElementsAre("unknown op 0 aten::relu: self is not known: w at entry"));
  b.buffers[0].digest = trace::Digest{1, 1};
  const Compared compared(a, b);
  EXPECT_THAT(compared.words(), ElementsAre("receiver op 0 aten::relu: self differs: w at entry"));
  EXPECT_EQ(words_of_entered(compared.found, a, 1), "w");
  EXPECT_EQ(compared.found.count(), 2u);
}

TEST_F(WrittenRuns, MemoryThatNobodyWroteIsNotCompared) {
  const auto run = [](int left) {
    return "  op 0: t1 = aten::empty.memory_format({4})  forward digest @" + std::to_string(left) +
           "\n  op 1: t1 = aten::mul_.Scalar(t1, 0)  forward digest @9\n";
  };
  EXPECT_THAT(words(run(1), run(2)), IsEmpty());
}

/// Draws into new memory, then reads what was drawn.
std::string drawing(int first, int second) {
  return "  op 0: t1 = aten::empty.memory_format({4})  forward digest @" + std::to_string(first) +
         "\n  op 1: t1 = aten::bernoulli_.float(t1, 0x1p-1, none)  forward digest @" +
         std::to_string(first) +
         "\n  op 2: t4 = aten::bernoulli_.float(t4, 0x1p-1, none)  forward digest @" +
         std::to_string(second) + "\n";
}

TEST_F(WrittenRuns, WhereAGeneratorStoodIsOftenNotKnown) {
  EXPECT_THAT(words(drawing(1, 2), drawing(3, 4)),
              ElementsAre("unknown op 1 aten::bernoulli_.float: generator default is not known: as "
                          "it entered or was set",
                          "unknown op 2 aten::bernoulli_.float: generator default is not known: "
                          "after op 1 aten::bernoulli_.float"));
}

TEST_F(WrittenRuns, WhereAGeneratorStoodAtEntryIsKnownWhereItWasWrittenDown) {
  const auto entered = [](int state) {
    return "  generator \"default\" @" + std::to_string(state) + "\n";
  };
  EXPECT_THAT(words(entered(1) + drawing(1, 2), entered(1) + drawing(1, 4)),
              ElementsAre("origin op 2 aten::bernoulli_.float: inputs are equal"));
  EXPECT_THAT(words(entered(1) + drawing(1, 2), entered(2) + drawing(1, 4)),
              ElementsAre("receiver op 2 aten::bernoulli_.float: generator default differs: after "
                          "op 1 aten::bernoulli_.float"));
}

TEST_F(WrittenRuns, AGeneratorThatWasSetToAnotherStateDiffers) {
  const auto set = [](int state) {
    return "  seek before op 1 \"default\" @" + std::to_string(state) + "\n";
  };
  EXPECT_THAT(words(drawing(1, 2) + set(1), drawing(1, 4) + set(1)),
              ElementsAre("origin op 2 aten::bernoulli_.float: inputs are equal"));
  EXPECT_THAT(words(drawing(1, 2) + set(1), drawing(3, 2) + set(2)),
              ElementsAre("receiver op 1 aten::bernoulli_.float: generator default differs: as it "
                          "entered or was set"));
}

TEST_F(WrittenRuns, WhatAnOpOverwritesIsAnInputByItsDtypeAndSizes) {
  const std::string set = "  seek before op 0 \"default\" @1\n";
  const auto run = [&](const std::string& drawn, int left) {
    return "  op 0: " + drawn + " = aten::bernoulli_.float(" + drawn +
           ", 0x1p-1, none)  forward digest @" + std::to_string(left) + "\n" + set;
  };
  EXPECT_THAT(words(run("t1", 1), run("t1", 2)),
              ElementsAre("origin op 0 aten::bernoulli_.float: inputs are equal"));
  EXPECT_THAT(words(run("t1", 1), run("t2", 2)),
              ElementsAre("receiver op 0 aten::bernoulli_.float: self differs: float32 [4] → "
                          "float32 [2]"));
}

TEST_F(WrittenRuns, AnOpThatTakesSizesAloneReceivesOthers) {
  const auto run = [](const std::string& like, int left) {
    return "  op 0: t4 = aten::zeros_like(" + like + ")  forward digest @" + std::to_string(left) +
           "\n";
  };
  EXPECT_THAT(words(run("t1", 1), run("t1", 2)),
              ElementsAre("origin op 0 aten::zeros_like: inputs are equal"));
  EXPECT_THAT(words(run("t1", 1), run("t2", 2)),
              ElementsAre("receiver op 0 aten::zeros_like: self differs: float32 [4] → float32 "
                          "[2]"));
}

TEST_F(WrittenRuns, AnotherDrawBeforeItMovesAGenerator) {
  trace::Recording a = recording(drawing(1, 2));
  trace::Recording b = recording(drawing(1, 4));
  a.ops.erase(a.ops.begin() + 1);
  a.op_digests.erase(a.op_digests.begin() + 1);
  const Compared compared(a, b);
  const NumericOp* first = compared.found.first();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->status, NumericStatus::kReceiver);
  EXPECT_EQ(first->input.kind, InputKind::kGenerator);
}

TEST_F(WrittenRuns, NumbersThatTheHostReadAreCompared) {
  const auto run = [](const std::string& number) {
    return "  op 0: " + number + " = aten::_local_scalar_dense(t0)  forward digest @0\n";
  };
  EXPECT_THAT(words(run("0x1p+0"), run("0x1p+1")),
              ElementsAre("origin op 0 aten::_local_scalar_dense: inputs are equal"));
  EXPECT_THAT(words(run("0x1p+0"), run("0x1p+0")), IsEmpty());
}

TEST_F(WrittenRuns, TheItemOfAListIsNamed) {
  const auto run = [](int left, int joined) {
    return "  op 0: t1 = aten::relu(t0)  forward digest @" + std::to_string(left) +
           "\n  op 1: t4 = aten::cat({t0, t1})  forward digest @" + std::to_string(joined) + "\n";
  };
  EXPECT_THAT(words(run(1, 2), run(3, 4)),
              ElementsAre("origin op 0 aten::relu: inputs are equal",
                          "receiver op 1 aten::cat: tensors[1] differs: op 0 aten::relu"));
}

TEST_F(WrittenRuns, RecordingsWithoutDigestsAndOfOtherCallsAreNotCompared) {
  const std::string with = "  op 0: t1 = aten::relu(t0)  forward digest @1\n";
  const std::string without = "  op 0: t1 = aten::relu(t0)  forward\n";
  const auto why = [](const trace::Recording& a, const trace::Recording& b) {
    return Compared(a, b).found.not_compared;
  };
  EXPECT_EQ(why(recording(with), recording(with)), "");
  EXPECT_EQ(why(recording(with), recording(without)), "the second has no digests of its ops");
  EXPECT_EQ(why(recording(without), recording(with)), "the first has no digests of its ops");
  EXPECT_EQ(why(recording(without), recording(without)), "neither has digests of its ops");
  EXPECT_EQ(why(recording(with, "recording agreed call 3"), recording(with)), "");
  EXPECT_EQ(
      why(recording(with, "recording agreed call 3"), recording(with, "recording agreed call 4")),
      "they are calls 3 and 4");
}

TEST(NumericWordsTest, TheLineStandsAtTheEndOfAScope) {
  EXPECT_EQ(line_of("Optimizer.step#Adam.step > train.py:41"), "train.py:41");
  EXPECT_EQ(line_of("train.py:41"), "train.py:41");
  for (const char* none : {"", "forward", "a > b", "a:b", "aten::relu", ":1", "a:"}) {
    EXPECT_EQ(line_of(none), "") << none;
  }
}

}  // namespace
}  // namespace steptape::diff
