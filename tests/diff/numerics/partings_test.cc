#include "diff/numerics/partings.h"

#include <gmock/gmock.h>

#include "diff/numerics/numeric_words.h"
#include "tests/trace/text/text_parse.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;

/// A step of two processes: a product of the parameter `w` and the input is exchanged, or is not,
/// and added to `w`; a buffer of the module counts along.
class PartingsTest : public testing::Test {
 protected:
  struct Run {
    std::string parameter = "@100", input = "@101";  ///< at entry
    std::string product = "@1", exchanged = "@2", stepped = "@3", counted = "@4";
    std::string rate = "1";
    bool exchanges = true;
  };

  static trace::Recording recording(const Run& run) {
    const std::string op_1 = run.exchanges
                                 ? "  op 1: t2 = c10d::allreduce_(t2)  forward digest "
                                 : "  op 1: t2 = aten::mul_.Scalar(t2, 1)  forward digest ";
    return trace::parse_recording(trace::with_digests(
        R"tape(recording trusted call 3
  operator o0 "aten::mul" "Tensor" "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
  operator o1 "c10d::allreduce_" "" "c10d::allreduce_(Tensor(a!) tensors) -> Tensor(a!)"
  operator o2 "aten::add_" "Tensor" "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar 1) -> Tensor(a!)"
  operator o3 "aten::mul_" "Scalar" "aten::mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)"
  buffer b0 16 bytes cpu parameter "w" address 0 digest )tape" +
        run.parameter + R"tape(
  buffer b1 16 bytes cpu input "inputs[0]" address 0 digest )tape" +
        run.input + R"tape(
  buffer b2 16 bytes cpu temporary "" address 0
  buffer b3 16 bytes cpu module_buffer "mean" address 0 digest @102
  tensor t0 in b0 float32 sizes [4] strides [1] offset 0
  tensor t1 in b1 float32 sizes [4] strides [1] offset 0
  tensor t2 in b2 float32 sizes [4] strides [1] offset 0
  tensor t3 in b3 float32 sizes [4] strides [1] offset 0
  op 0: t2 = aten::mul.Tensor(t0, t1)  forward digest )tape" +
        run.product + "\n" + op_1 + run.exchanged + "\n  op 2: t0 = aten::add_.Tensor(t0, t2, " +
        run.rate + ")  forward digest " + run.stepped +
        "\n  op 3: t3 = aten::add_.Tensor(t3, t1, 1)  forward digest " + run.counted + "\n"));
  }

  static std::optional<Parting> parting(const Run& a, const Run& b, const Shared& shared = {}) {
    const trace::Recording first = recording(a);
    const trace::Recording second = recording(b);
    const OpStream stream_a(first);
    const OpStream stream_b(second);
    const auto found = numeric_differences(stream_a, stream_b, align(stream_a, stream_b));
    EXPECT_TRUE(found.is_compared()) << found.not_compared;
    return find_parting(first, found, shared);
  }
  static std::vector<trace::Index> way_of(const Parting& parting) {
    std::vector<trace::Index> way;
    for (const NumericOp& op : parting.way) way.push_back(op.a);
    return way;
  }

  const Run other_input_{.input = "@201", .product = "@11"};
};

TEST_F(PartingsTest, WhatIsExchangedMayDifferBefore) {
  EXPECT_FALSE(parting({}, {}));
  EXPECT_FALSE(parting({}, other_input_));
}

TEST_F(PartingsTest, WhatIsNotExchangedComesFromTheInput) {
  Run a{.exchanges = false};
  Run b = other_input_;
  b.exchanges = false;
  b.exchanged = "@12";
  b.stepped = "@13";
  const auto found = parting(a, b);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->paths, ElementsAre("w"));
  EXPECT_THAT(way_of(*found), ElementsAre(2, 1, 0));
  EXPECT_FALSE(found->ends_at_collective);
  const trace::Recording first = recording(a);
  const trace::Recording second = recording(b);
  EXPECT_EQ(found->entry(OpStream(first), OpStream(second)), "inputs[0] at entry");
}

TEST_F(PartingsTest, ACollectiveThatGivesOtherResultsEndsTheWay) {
  Run b = other_input_;
  b.exchanged = "@12";
  b.stepped = "@13";
  const auto found = parting({}, b);
  ASSERT_TRUE(found);
  EXPECT_THAT(way_of(*found), ElementsAre(2, 1));
  EXPECT_TRUE(found->ends_at_collective);
}

TEST_F(PartingsTest, AnotherNumberIsNamed) {
  Run b{.stepped = "@13", .rate = "2"};
  const auto found = parting({}, b);
  ASSERT_TRUE(found);
  EXPECT_THAT(way_of(*found), ElementsAre(2));
  EXPECT_EQ(found->way[0].input.kind, InputKind::kScalar);
}

TEST_F(PartingsTest, WhatDifferedBeforeIsToldAsSuch) {
  const auto found = parting({}, {.parameter = "@200", .product = "@11", .stepped = "@13"});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->is_at_entry);
  EXPECT_THAT(found->paths, ElementsAre("w"));
  EXPECT_TRUE(found->way.empty());
}

TEST_F(PartingsTest, BuffersOfModulesCountWhereTheyAreToBeAlike) {
  Run b = other_input_;
  b.counted = "@14";
  EXPECT_FALSE(parting({}, b));
  const auto found = parting({}, b, {.buffers = true});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->paths, ElementsAre("mean"));
}

TEST_F(PartingsTest, ManyPathsAreCounted) {
  EXPECT_EQ(words_of_some(std::vector<std::string>{"a", "b", "c"}, 2), "a, b (and 1 more)");
  EXPECT_EQ(words_of_some(std::vector<std::string>{"a", "b"}, 2), "a, b");
}

}  // namespace
}  // namespace steptape::diff
