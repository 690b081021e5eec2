#include "trace/formula.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>

#include "trace/proved_values.h"

namespace steptape::trace {
namespace {

const std::vector<Leaf> kLeaves = {{LeafKind::kHyperparameter, "lr"},
                                   {LeafKind::kHyperparameter, "beta"},
                                   {LeafKind::kStateNumber, "step"}};

Formula bias_correction() { return constant(1) - power(leaf(1), leaf(2) + constant(1)); }

TEST(FormulaTest, GivesTheBitsOfTheExpression) {
  const std::vector<double> values = {3e-4, 0.999, 1269};
  EXPECT_EQ(evaluate(bias_correction(), values), 1 - std::pow(0.999, 1270));
  EXPECT_EQ(evaluate(square_root(bias_correction()), values), std::sqrt(1 - std::pow(0.999, 1270)));
  EXPECT_EQ(evaluate(-(leaf(0) / bias_correction()), values),
            -(3e-4 / (1 - std::pow(0.999, 1270))));
  EXPECT_EQ(evaluate(maximum(leaf(0), constant(0)), values), 3e-4);
  EXPECT_EQ(evaluate(leaf(0) * leaf(1) + constant(2), values), 3e-4 * 0.999 + 2);
}

TEST(FormulaTest, NegativeZeroKeepsItsSign) {
  EXPECT_TRUE(std::signbit(evaluate(constant(-1) * constant(0), {})));
  EXPECT_TRUE(std::signbit(evaluate(-constant(0), {})));
}

double of(Operation operation, double a) {
  return evaluate({{{Operation::kConstant, {a}, kNone}, {operation, {}, kNone}}}, {});
}

double of(Operation operation, double a, double b) {
  return evaluate({{{Operation::kConstant, {a}, kNone},
                    {Operation::kConstant, {b}, kNone},
                    {operation, {}, kNone}}},
                  {});
}

TEST(FormulaTest, DividesAsPythonDoes) {
  EXPECT_EQ(of(Operation::kModulo, 7, 4), 3);
  EXPECT_EQ(of(Operation::kModulo, -7, 4), 1);
  EXPECT_EQ(of(Operation::kModulo, 7, -4), -1);
  EXPECT_TRUE(std::signbit(of(Operation::kModulo, 8, -4)));
  EXPECT_EQ(of(Operation::kFloorDivide, -7, 4), -2);
  EXPECT_EQ(of(Operation::kFloorDivide, 7, 4), 1);
  EXPECT_EQ(of(Operation::kFloorDivide, 9007199254740991, 3), 3002399751580330);
  EXPECT_TRUE(std::signbit(of(Operation::kFloorDivide, -0.0, 4)));
  EXPECT_EQ(of(Operation::kModulo, 1, 0.1), 0.09999999999999995);
  EXPECT_EQ(of(Operation::kFloorDivide, 1, 0.1), 9);
}

TEST(FormulaTest, RoundsAsPythonDoes) {
  EXPECT_EQ(of(Operation::kRound, 2.5), 2);
  EXPECT_EQ(of(Operation::kRound, 3.5), 4);
  EXPECT_EQ(of(Operation::kTruncate, -2.5), -2);
  EXPECT_EQ(of(Operation::kFloor, -2.5), -3);
  EXPECT_EQ(of(Operation::kCeiling, -2.5), -2);
  EXPECT_EQ(of(Operation::kAbsolute, -2.5), 2.5);
  EXPECT_EQ(of(Operation::kCosine, 0.7), std::cos(0.7));
  EXPECT_EQ(of(Operation::kExponential, 0.7), std::exp(0.7));
  EXPECT_EQ(of(Operation::kBinaryLogarithm, 8), 3);
  EXPECT_EQ(of(Operation::kDecimalLogarithm, 1000), 3);
  EXPECT_EQ(of(Operation::kLogarithmOf1Plus, 1e-20), 1e-20);
  EXPECT_EQ(of(Operation::kExponentialMinus1, 1e-20), 1e-20);
  volatile double given = 0.7;  // the compiler's own constants may differ in their last bit
  EXPECT_EQ(of(Operation::kTangent, given), std::tan(given));
  EXPECT_EQ(of(Operation::kArcTangent, given), std::atan(given));
  EXPECT_EQ(of(Operation::kHyperbolicSine, given), std::sinh(given));
  EXPECT_EQ(of(Operation::kHyperbolicCosine, given), std::cosh(given));
  EXPECT_EQ(of(Operation::kHyperbolicTangent, given), std::tanh(given));
}

TEST(FormulaTest, RoundsToDecimalsAsPythonDoes) {
  EXPECT_EQ(of(Operation::kRoundTo, 2.675, 2), 2.67) << "the double is less than that";
  EXPECT_EQ(of(Operation::kRoundTo, 0.125, 2), 0.12);
  EXPECT_EQ(of(Operation::kRoundTo, 0.375, 2), 0.38);
  EXPECT_EQ(of(Operation::kRoundTo, 5e-324, 22), 0);
  EXPECT_EQ(of(Operation::kRoundTo, 1.7976931348623157e308, 22), 1.7976931348623157e308);
  EXPECT_TRUE(std::signbit(of(Operation::kRoundTo, -0.004, 2)));
  EXPECT_TRUE(std::isnan(of(Operation::kRoundTo, std::nan(""), 2)));
}

TEST(FormulaTest, AddsUpAsPythonDoes) {
  const auto sum_of = [](std::initializer_list<double> numbers, Operation last) {
    Formula sum = constant(0);
    for (const double& number : numbers) {
      sum.nodes.push_back({Operation::kConstant, {number}, kNone});
      sum.nodes.push_back(
          {&number == numbers.end() - 1 ? last : Operation::kAccumulate, {}, kNone});
    }
    sum.nodes.push_back({Operation::kSettle, {}, kNone});
    return evaluate(sum, {});
  };
  constexpr auto kAccumulate = Operation::kAccumulate;
  EXPECT_EQ(sum_of({0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, kAccumulate), 1);
  EXPECT_EQ(sum_of({1e100, 1, -1e100}, kAccumulate), 1);
  EXPECT_EQ(sum_of({1e100, 1, -1e100}, Operation::kAdd), 1) << "what an int leaves is kept too";
  EXPECT_EQ(sum_of({1, HUGE_VAL}, kAccumulate), HUGE_VAL) << "what is kept is not a number";
  EXPECT_FALSE(std::signbit(sum_of({-0.0}, kAccumulate)));
  Formula two = leaf(0);
  two.nodes.push_back({Operation::kLeaf, {}, 1});
  two.nodes.push_back({kAccumulate, {}, kNone});
  two.nodes.push_back({Operation::kSettle, {}, kNone});
  EXPECT_EQ(text_of(two, kLeaves), "sum(lr + beta)");
}

TEST(FormulaTest, ReadsAsAPersonWritesIt) {
  EXPECT_EQ(text_of(-(leaf(0) / bias_correction()), kLeaves),
            "-(lr ÷ (1 - pow(beta, (step + 1))))");
}

TEST(FormulaTest, OnlyWellFormedOnesAreTaken) {
  EXPECT_TRUE(is_well_formed(bias_correction(), 3));
  EXPECT_FALSE(is_well_formed(bias_correction(), 2)) << "a leaf that does not exist";
  EXPECT_FALSE(is_well_formed({}, 3)) << "no value";
  EXPECT_FALSE(is_well_formed({{{Operation::kNegate, {}, kNone}}}, 3)) << "nothing to negate";
  Formula two = constant(1);
  two.nodes.push_back(two.nodes[0]);
  EXPECT_FALSE(is_well_formed(two, 3)) << "two values";
  Formula deep = constant(1);
  deep.nodes.resize(kMaxFormulaDepth + 1, deep.nodes[0]);
  deep.nodes.resize(2 * kMaxFormulaDepth + 1, {Operation::kAdd, {}, kNone});
  EXPECT_FALSE(is_well_formed(deep, 3)) << "too deep";
  EXPECT_FALSE(is_well_formed({{{static_cast<Operation>(99), {}, kNone}}}, 3));
}

TEST(ProvedValuesTest, AfterThreeValuesAnyHoldsButTurns) {
  ProvedValues proved;
  for (const double value : {0.1, 0.2, 0.7}) {
    EXPECT_FALSE(proved.holds(value));
    proved.add(value);
    EXPECT_TRUE(proved.holds(value));
  }
  EXPECT_TRUE(proved.holds(0.3));
  for (const double turn : {0.0, -0.0, 0.5, 1.0, 2.0, 1.25, -0.25, double{INFINITY}}) {
    EXPECT_FALSE(proved.holds(turn)) << turn;
  }
}

TEST(ProvedValuesTest, AreTheSameWhenTheyComeOutOfAFile) {
  for (const std::vector<double>& values :
       {std::vector<double>{}, {-2}, {1.5, -2}, {0, -0.0, 2}, {0.1, 0.2, 0.3, 2, 17, 1e300}}) {
    ProvedValues proved;
    for (const double value : values) proved.add(value);
    EXPECT_EQ(ProvedValues(proved.values(), proved.turns()), proved);
  }
}

}  // namespace
}  // namespace steptape::trace
