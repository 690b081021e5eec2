#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/value.h"

/// How a host number that an op uses follows from numbers outside the tensors: data, stored in the
/// trace and evaluated before each replay. Everything is computed in double precision, in the order
/// in which the program computes it, so that the bits are the program's.
namespace steptape::trace {

using Index = std::uint32_t;
inline constexpr Index kNone = 0xffffffff;

/// Where a number comes from. Numbers are those of the trace file.
enum class LeafKind : std::uint8_t {
  kHyperparameter = 1,  ///< "optimizer.param_groups[0].betas[1]", as it stands when the step begins
  kStateNumber,         ///< "optimizer.state[model.fc1.weight].step", when the step begins
  kArgument,            ///< "inputs[1]", a number that the caller passes
  kHostValue,           ///< a name of Session::host
  kHostRead,            ///< "ops[17]": what that op of the same run gave the host
};

std::string_view name_of(LeafKind kind) noexcept;
LeafKind leaf_kind_of(std::string_view name);

struct Leaf {
  LeafKind kind = LeafKind::kHyperparameter;
  std::string path;
  friend bool operator==(const Leaf&, const Leaf&) = default;
};

enum class Operation : std::uint8_t {
  kConstant = 1,
  kLeaf,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kPower,
  kMaximum,
  kSquareRoot,
  kNegate,
  kSameBits,  ///< 1 where both have the same bits, else 0: 0.0 and -0.0 differ
  kLess,      ///< 1 where a < b, else 0; the comparisons are IEEE's, false for NaN
  kLessEqual,
  kEqual,
  kMinimum,
  kModulo,       ///< Python's `%`: the result has the sign of b
  kFloorDivide,  ///< Python's `//`
  kAbsolute,
  kFloor,
  kCeiling,
  kRound,  ///< to the nearest integer, halves to the even one
  kTruncate,
  kExponential,
  kLogarithm,
  kSine,
  kCosine,
  kRoundTo,  ///< to `b` decimals, from 0 to 22, halves to the even one
  kBinaryLogarithm,
  kDecimalLogarithm,
  kLogarithmOf1Plus,
  kExponentialMinus1,
  kTangent,
  kArcTangent,
  kHyperbolicSine,
  kHyperbolicCosine,
  kHyperbolicTangent,
  kAccumulate,  ///< a + b; what rounding took away is kept beside the result, for kSettle
  kSettle,      ///< a with what was kept beside it: how CPython's `sum` of floats ends since 3.12
};

std::string_view name_of(Operation operation) noexcept;
/// How many values it takes from the stack: 0, 1 or 2.
int operands_of(Operation operation) noexcept;

struct Node {
  Operation operation = Operation::kConstant;
  Real constant;       ///< of kConstant
  Index leaf = kNone;  ///< of kLeaf: in Recording::leaves
  friend bool operator==(const Node&, const Node&) = default;
};

/// An expression in reverse Polish order: `l0 neg`, `1 l1 l2 pow sub`.
struct Formula {
  std::vector<Node> nodes;
  friend bool operator==(const Formula&, const Formula&) = default;
};

/// The leaves among nodes, in their order, each as often as it stands there. By hand, since clang
/// 14, whose clang-tidy looks at this, does not know views of GCC 12's library.
template <typename AnyNode>
class Leaves {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Index;
    using difference_type = std::ptrdiff_t;
    using reference = decltype((std::declval<AnyNode&>().leaf));
    using pointer = std::remove_reference_t<reference>*;

    Iterator() = default;
    Iterator(AnyNode* at, AnyNode* end) : at_(at), end_(end) { find(); }
    reference operator*() const { return at_->leaf; }
    Iterator& operator++() {
      ++at_;
      find();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    void find() {
      while (at_ != end_ && at_->operation != Operation::kLeaf) ++at_;
    }
    AnyNode* at_ = nullptr;
    AnyNode* end_ = nullptr;
  };

  explicit Leaves(std::span<AnyNode> nodes) : nodes_(nodes) {}
  Iterator begin() const { return {nodes_.data(), nodes_.data() + nodes_.size()}; }
  Iterator end() const { return {nodes_.data() + nodes_.size(), nodes_.data() + nodes_.size()}; }

 private:
  std::span<AnyNode> nodes_;
};

/// Those that it reads.
inline Leaves<const Node> leaves_of(const Formula& formula) {
  return Leaves<const Node>(formula.nodes);
}
inline Leaves<Node> leaves_of(Formula& formula) { return Leaves<Node>(formula.nodes); }

/// Whether it reads what an op of the same run gives the host.
bool waits_for_read(const Formula& formula, std::span<const Leaf> leaves);

Formula constant(double value);
Formula leaf(Index leaf);
/// The operation of one operand, or of two, over what these formulas give.
Formula applied(const Formula& a, Operation operation);
Formula joined(const Formula& a, const Formula& b, Operation operation);
Formula operator+(const Formula& a, const Formula& b);
Formula operator-(const Formula& a, const Formula& b);
Formula operator*(const Formula& a, const Formula& b);
Formula operator/(const Formula& a, const Formula& b);
Formula operator-(const Formula& a);
Formula power(const Formula& base, const Formula& exponent);
Formula maximum(const Formula& a, const Formula& b);
Formula square_root(const Formula& a);
Formula same_bits(const Formula& a, const Formula& b);

/// At most so many values are on the stack of a well-formed formula at a time.
inline constexpr std::size_t kMaxFormulaDepth = 16;

/// Whether it leaves exactly one value, never takes from an empty stack, stays within
/// kMaxFormulaDepth, and reads only leaves below `leaves`.
bool is_well_formed(const Formula& formula, std::size_t leaves) noexcept;

/// The value of a well-formed formula; `leaves` has one for each of Recording::leaves.
double evaluate(const Formula& formula, std::span<const double> leaves) noexcept;

/// "-(optimizer.param_groups[0].lr / (1 - pow(..., ...)))": for people.
std::string text_of(const Formula& formula, std::span<const Leaf> leaves);

}  // namespace steptape::trace
