#include "trace/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "trace/named.h"

namespace steptape::trace {
namespace {

struct Divided {
  double quotient, remainder;
};

/// As CPython divides floats (Objects/floatobject.c), which is exact for integers below 2^53 too.
Divided divided(double a, double b) noexcept {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder == 0) {
    remainder = std::copysign(0.0, b);
  } else if ((b < 0) != (remainder < 0)) {
    remainder += b;
    quotient -= 1;
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), remainder};
  const double floored = std::floor(quotient);
  return {quotient - floored > 0.5 ? floored + 1 : floored, remainder};
}

/// As CPython's float.__round__ (Objects/floatobject.c): the decimals nearest to the exact value,
/// and the double nearest to these.
double rounded_to(double value, double decimals) noexcept {
  constexpr int kMost = 22;
  if (!std::isfinite(value) || !(decimals >= 0 && decimals <= kMost)) return value;
  std::array<char, 400> text;  // more than the longest double has
  const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed,
                                 static_cast<int>(decimals));
  double rounded = value;
  std::from_chars(text.begin(), end.ptr, rounded);
  return rounded;
}

/// The row of an operation stands at its number less one.
struct OperationRow {
  Operation operation;
  std::string_view name;
  int operands;
  double (*apply)(double a, double b);  ///< `a` is the only operand of one
  std::string_view sign = "";           ///< how a user reads it, where it isn't called by name
};

constexpr std::array kOperations = {
    OperationRow{Operation::kConstant, "constant", 0, [](double a, double) { return a; }},
    OperationRow{Operation::kLeaf, "leaf", 0, [](double a, double) { return a; }},
    OperationRow{Operation::kAdd, "add", 2, [](double a, double b) { return a + b; }, " + "},
    OperationRow{Operation::kSubtract, "sub", 2, [](double a, double b) { return a - b; }, " - "},
    OperationRow{Operation::kMultiply, "mul", 2, [](double a, double b) { return a * b; }, " × "},
    OperationRow{Operation::kDivide, "div", 2, [](double a, double b) { return a / b; }, " ÷ "},
    OperationRow{Operation::kPower, "pow", 2, [](double a, double b) { return std::pow(a, b); }},
    OperationRow{Operation::kMaximum, "max", 2, [](double a, double b) { return a > b ? a : b; }},
    OperationRow{Operation::kSquareRoot, "sqrt", 1, [](double a, double) { return std::sqrt(a); }},
    OperationRow{Operation::kNegate, "neg", 1, [](double a, double) { return -a; }},
    OperationRow{Operation::kSameBits, "same", 2,
                 [](double a, double b) { return Real{a} == Real{b} ? 1. : 0.; }},
    OperationRow{Operation::kLess, "lt", 2, [](double a, double b) { return a < b ? 1. : 0.; },
                 " < "},
    OperationRow{Operation::kLessEqual, "le", 2,
                 [](double a, double b) { return a <= b ? 1. : 0.; }, " ≤ "},
    OperationRow{Operation::kEqual, "eq", 2, [](double a, double b) { return a == b ? 1. : 0.; },
                 " = "},
    OperationRow{Operation::kMinimum, "min", 2, [](double a, double b) { return a < b ? a : b; }},
    OperationRow{Operation::kModulo, "mod", 2,
                 [](double a, double b) { return divided(a, b).remainder; }},
    OperationRow{Operation::kFloorDivide, "floordiv", 2,
                 [](double a, double b) { return divided(a, b).quotient; }},
    OperationRow{Operation::kAbsolute, "abs", 1, [](double a, double) { return std::fabs(a); }},
    OperationRow{Operation::kFloor, "floor", 1, [](double a, double) { return std::floor(a); }},
    OperationRow{Operation::kCeiling, "ceil", 1, [](double a, double) { return std::ceil(a); }},
    OperationRow{Operation::kRound, "round", 1, [](double a, double) { return std::nearbyint(a); }},
    OperationRow{Operation::kTruncate, "trunc", 1, [](double a, double) { return std::trunc(a); }},
    OperationRow{Operation::kExponential, "exp", 1, [](double a, double) { return std::exp(a); }},
    OperationRow{Operation::kLogarithm, "log", 1, [](double a, double) { return std::log(a); }},
    OperationRow{Operation::kSine, "sin", 1, [](double a, double) { return std::sin(a); }},
    OperationRow{Operation::kCosine, "cos", 1, [](double a, double) { return std::cos(a); }},
    OperationRow{Operation::kRoundTo, "round_to", 2,
                 [](double a, double b) { return rounded_to(a, b); }},
    OperationRow{Operation::kBinaryLogarithm, "log2", 1,
                 [](double a, double) { return std::log2(a); }},
    OperationRow{Operation::kDecimalLogarithm, "log10", 1,
                 [](double a, double) { return std::log10(a); }},
    OperationRow{Operation::kLogarithmOf1Plus, "log1p", 1,
                 [](double a, double) { return std::log1p(a); }},
    OperationRow{Operation::kExponentialMinus1, "expm1", 1,
                 [](double a, double) { return std::expm1(a); }},
    OperationRow{Operation::kTangent, "tan", 1, [](double a, double) { return std::tan(a); }},
    OperationRow{Operation::kArcTangent, "atan", 1, [](double a, double) { return std::atan(a); }},
    OperationRow{Operation::kHyperbolicSine, "sinh", 1,
                 [](double a, double) { return std::sinh(a); }},
    OperationRow{Operation::kHyperbolicCosine, "cosh", 1,
                 [](double a, double) { return std::cosh(a); }},
    OperationRow{Operation::kHyperbolicTangent, "tanh", 1,
                 [](double a, double) { return std::tanh(a); }},
    OperationRow{Operation::kAccumulate, "accumulate", 2, [](double a, double b) { return a + b; },
                 " + "},
    OperationRow{Operation::kSettle, "sum", 1, [](double a, double) { return a; }},
};

consteval bool are_in_order() {
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (kOperations[i].operation != static_cast<Operation>(i + 1)) return false;
  }
  return true;
}
static_assert(are_in_order());

constexpr std::array kLeafKinds = {
    Named{LeafKind::kHyperparameter, "hyperparameter"},
    Named{LeafKind::kStateNumber, "state_number"},
    Named{LeafKind::kArgument, "argument"},
    Named{LeafKind::kHostValue, "host_value"},
    Named{LeafKind::kHostRead, "host_read"},
};

/// Null for a number that no operation has, as a damaged file may.
const OperationRow* row_of(Operation operation) noexcept {
  const auto number = static_cast<std::size_t>(operation);
  return number != 0 && number <= kOperations.size() ? &kOperations[number - 1] : nullptr;
}

/// A value on the stack, and beside a sum what rounding has taken from it so far.
struct Entry {
  double value = 0;
  double kept = 0;
};

/// As CPython's `sum` goes on with a float (Python/bltinmodule.c), after Kahan, Babuška and
/// Neumaier.
Entry accumulated(Entry sum, double number) noexcept {
  const double total = sum.value + number;
  const bool is_larger = std::fabs(sum.value) >= std::fabs(number);
  sum.kept += is_larger ? (sum.value - total) + number : (number - total) + sum.value;
  sum.value = total;
  return sum;
}

Entry settled(Entry sum) noexcept {
  const bool has_more = sum.kept != 0 && std::isfinite(sum.kept);
  return {has_more ? sum.value + sum.kept : sum.value, 0};
}

std::string words_of(const Node& node, std::span<const Leaf> leaves) {
  if (node.operation == Operation::kConstant) return fmt::format("{}", node.constant.value);
  return node.leaf < leaves.size() ? leaves[node.leaf].path : fmt::format("l{}", node.leaf);
}

}  // namespace

std::string_view name_of(LeafKind kind) noexcept { return find_name(kLeafKinds, kind); }
LeafKind leaf_kind_of(std::string_view name) {
  return find_value(kLeafKinds, "kind of leaf", name);
}

std::string_view name_of(Operation operation) noexcept {
  const OperationRow* row = row_of(operation);
  return row == nullptr ? "unknown" : row->name;
}

int operands_of(Operation operation) noexcept {
  const OperationRow* row = row_of(operation);
  return row == nullptr ? 0 : row->operands;
}

Formula constant(double value) { return {{{Operation::kConstant, {value}, kNone}}}; }
Formula leaf(Index leaf) { return {{{Operation::kLeaf, {}, leaf}}}; }
Formula joined(const Formula& a, const Formula& b, Operation operation) {
  Formula formula = a;
  formula.nodes.insert(formula.nodes.end(), b.nodes.begin(), b.nodes.end());
  formula.nodes.push_back({operation, {}, kNone});
  return formula;
}

Formula applied(const Formula& a, Operation operation) {
  Formula formula = a;
  formula.nodes.push_back({operation, {}, kNone});
  return formula;
}

Formula operator+(const Formula& a, const Formula& b) { return joined(a, b, Operation::kAdd); }
Formula operator-(const Formula& a, const Formula& b) { return joined(a, b, Operation::kSubtract); }
Formula operator*(const Formula& a, const Formula& b) { return joined(a, b, Operation::kMultiply); }
Formula operator/(const Formula& a, const Formula& b) { return joined(a, b, Operation::kDivide); }
Formula operator-(const Formula& a) { return applied(a, Operation::kNegate); }
Formula power(const Formula& base, const Formula& exponent) {
  return joined(base, exponent, Operation::kPower);
}
Formula maximum(const Formula& a, const Formula& b) { return joined(a, b, Operation::kMaximum); }
Formula same_bits(const Formula& a, const Formula& b) { return joined(a, b, Operation::kSameBits); }
Formula square_root(const Formula& a) { return applied(a, Operation::kSquareRoot); }

bool waits_for_read(const Formula& formula, std::span<const Leaf> leaves) {
  return std::ranges::any_of(leaves_of(formula), [leaves](Index leaf) {
    return leaves[leaf].kind == LeafKind::kHostRead;
  });
}

bool is_well_formed(const Formula& formula, std::size_t leaves) noexcept {
  std::size_t depth = 0;
  for (const Node& node : formula.nodes) {
    if (row_of(node.operation) == nullptr) return false;
    if (node.operation == Operation::kLeaf && node.leaf >= leaves) return false;
    const auto operands = static_cast<std::size_t>(operands_of(node.operation));
    if (depth < operands) return false;
    depth += 1 - operands;
    if (depth > kMaxFormulaDepth) return false;
  }
  return depth == 1;
}

double evaluate(const Formula& formula, std::span<const double> leaves) noexcept {
  std::array<Entry, kMaxFormulaDepth> stack{};
  std::size_t depth = 0;
  for (const Node& node : formula.nodes) {
    const OperationRow& row = *row_of(node.operation);
    switch (row.operands) {
      case 0:
        stack[depth++] = {
            node.operation == Operation::kLeaf ? leaves[node.leaf] : node.constant.value, 0};
        break;
      case 1: {
        Entry& top = stack[depth - 1];
        top =
            node.operation == Operation::kSettle ? settled(top) : Entry{row.apply(top.value, 0), 0};
        break;
      }
      default: {
        const double last = stack[--depth].value;
        Entry& top = stack[depth - 1];
        // an int among the floats of a sum is added as it is
        const double kept = node.operation == Operation::kAdd ? top.kept : 0;
        top = node.operation == Operation::kAccumulate ? accumulated(top, last)
                                                       : Entry{row.apply(top.value, last), kept};
      }
    }
  }
  return stack[0].value;
}

std::string text_of(const Formula& formula, std::span<const Leaf> leaves) {
  std::vector<std::string> stack;
  const auto take = [&stack] {
    std::string top = stack.empty() ? "?" : std::move(stack.back());
    if (!stack.empty()) stack.pop_back();
    return top;
  };
  for (const Node& node : formula.nodes) {
    const OperationRow* row = row_of(node.operation);
    if (row == nullptr || row->operands == 0) {
      stack.push_back(words_of(node, leaves));
      continue;
    }
    const std::string b = take();
    if (row->operands == 1) {
      stack.push_back(node.operation == Operation::kNegate ? fmt::format("-{}", b)
                                                           : fmt::format("{}({})", row->name, b));
    } else if (const std::string a = take(); row->sign.empty()) {
      stack.push_back(fmt::format("{}({}, {})", row->name, a, b));
    } else if (node.operation == Operation::kAccumulate) {
      stack.push_back(fmt::format("{}{}{}", a, row->sign, b));  // within sum(...)
    } else {
      stack.push_back(fmt::format("({}{}{})", a, row->sign, b));
    }
  }
  return take();
}

}  // namespace steptape::trace
