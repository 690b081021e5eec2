#include "replayer/planner/numbers/evaluator.h"

#include <gtest/gtest.h>

#include <limits>

#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

/// 1 / what an op gives the host, for two ops: formulas that are alike but for whose number it is.
class EvaluatorTest : public testing::Test {
 protected:
  EvaluatorTest() {
    recording_.ops.resize(2);
    for (trace::Index op = 0; op < 2; ++op) {
      recording_.reads.push_back({op, trace::ReadUse::kFree});
      recording_.leaves.push_back({trace::LeafKind::kHostRead, trace::read_path(op)});
      recording_.formulas.push_back(trace::constant(1) / trace::leaf(op));
    }
  }

  std::pair<double, double> values_at(Evaluator& evaluator, double first, double second) const {
    evaluator.begin(std::vector<double>(2));
    EXPECT_TRUE(evaluator.read(0, first));
    EXPECT_TRUE(evaluator.read(1, second));
    return {evaluator.value(0), evaluator.value(1)};
  }

  trace::Recording recording_;
};

TEST_F(EvaluatorTest, FormulasWaitForTheirReads) {
  const Evaluator evaluator(recording_);
  EXPECT_EQ(evaluator.waits_for(0), 0U);
  EXPECT_EQ(evaluator.waits_for(1), 1U);
}

TEST_F(EvaluatorTest, EqualReadsShareAValueAndOthersDoNot) {
  Evaluator evaluator(recording_);
  EXPECT_EQ(values_at(evaluator, 4, 4), std::pair(0.25, 0.25));
  EXPECT_EQ(values_at(evaluator, 4, 5), std::pair(0.25, 0.2));
  EXPECT_EQ(values_at(evaluator, 5, 5), std::pair(0.2, 0.2));
}

TEST_F(EvaluatorTest, ZerosOfOtherSignsAreOthers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Evaluator evaluator(recording_);
  EXPECT_EQ(values_at(evaluator, 0.0, -0.0), std::pair(kInfinity, -kInfinity));
}

}  // namespace
}  // namespace steptape::replayer
