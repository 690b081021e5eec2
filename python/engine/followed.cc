#include "python/engine/followed.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <unordered_set>
#include <utility>

#include "python/engine/moving.h"
#include "python/engine/plain.h"
#include "python/engine/structure.h"

#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

namespace steptape::python {
namespace {

using trace::applied;
using trace::Formula;
using trace::joined;
using trace::Operation;
using watch::Operator;

constexpr double kLargestResult = 4503599627370496;  // of arithmetic on ints: 2^52
constexpr std::size_t kMostNodes = 2048;             // of a formula
constexpr std::size_t kMostObjects = 100'000;        // that are looked through at a time

recorder::FrontendHints& now() { return *recorder::FrontendHints::current(); }

/// Whether a formula of this size is kept, and a condition on it, which takes one value more.
bool is_kept(const Formula& formula) {
  if (formula.nodes.size() > kMostNodes) return false;
  const Formula condition = joined(formula, trace::constant(0), Operation::kEqual);
  return trace::is_well_formed(condition, now().leaves().size());
}

/// The int as an object that no other place has, which those are not that Python keeps.
py::object own_int(PyObject* number) {
  auto* from = reinterpret_cast<PyLongObject*>(number);
#if PY_VERSION_HEX >= 0x030C0000
  const auto digits = static_cast<Py_ssize_t>(from->long_value.lv_tag >> 3U);
#else
  const Py_ssize_t digits = std::abs(Py_SIZE(number));
#endif
  PyLongObject* made = _PyLong_New(std::max<Py_ssize_t>(digits, 1));
  if (made == nullptr) throw py::error_already_set();
  const auto bytes = static_cast<std::size_t>(digits) * sizeof(digit);
#if PY_VERSION_HEX >= 0x030C0000
  made->long_value.lv_tag = from->long_value.lv_tag;
  made->long_value.ob_digit[0] = 0;
  std::memcpy(made->long_value.ob_digit, from->long_value.ob_digit, bytes);
#else
  made->ob_digit[0] = 0;
  std::memcpy(made->ob_digit, from->ob_digit, bytes);
  Py_SET_SIZE(reinterpret_cast<PyVarObject*>(made), Py_SIZE(number));
#endif
  return stolen(reinterpret_cast<PyObject*>(made));
}

bool is_exact_int(PyObject* number) {
  const auto value = int64_of(number);
  return value && trace::is_exact_number({*value});
}

bool is_of_numpy(PyObject* number) { return is_float(number) && !PyFloat_CheckExact(number); }

double double_of(PyObject* number) {
  return PyFloat_Check(number) ? PyFloat_AS_DOUBLE(number)
                               : static_cast<double>(PyLong_AsLongLong(number));
}

std::optional<Operation> operation_of(Operator made) {
  constexpr std::array kRows = {
      std::pair{Operator::kAdd, Operation::kAdd},
      std::pair{Operator::kSubtract, Operation::kSubtract},
      std::pair{Operator::kMultiply, Operation::kMultiply},
      std::pair{Operator::kDivide, Operation::kDivide},
      std::pair{Operator::kFloorDivide, Operation::kFloorDivide},
      std::pair{Operator::kModulo, Operation::kModulo},
      std::pair{Operator::kPower, Operation::kPower},
      std::pair{Operator::kNegate, Operation::kNegate},
  };
  const auto row = std::ranges::find(kRows, made, &std::pair<Operator, Operation>::first);
  return row == kRows.end() ? std::nullopt : std::optional(row->second);
}

/// Whether it may give -0.0 where Python gives the int 0.
bool may_give_negative_zero(Operation operation) {
  return operation != Operation::kAdd && operation != Operation::kSubtract &&
         operation != Operation::kAbsolute && operation != Operation::kMaximum &&
         operation != Operation::kMinimum;
}

void require_small(const Formula& formula) {
  now().require(joined(formula, trace::constant(kLargestResult), Operation::kLessEqual), true);
  now().require(joined(trace::constant(-kLargestResult), formula, Operation::kLessEqual), true);
}

Formula is_finite(const Formula& formula) {
  return joined(formula - formula, trace::constant(0), Operation::kEqual);
}

/// Requires what makes NumPy say nothing of a result: no infinity, no NaN, no lost bits.
bool require_normal(const Formula& formula, double value) {
  if (!std::isnormal(value) && value != 0) return false;
  const Formula size = applied(formula, Operation::kAbsolute);
  const double least = value == 0 ? 0 : DBL_MIN;
  const double greatest = value == 0 ? 0 : DBL_MAX;
  now().require(joined(trace::constant(least), size, Operation::kLessEqual), true);
  now().require(joined(size, trace::constant(greatest), Operation::kLessEqual), true);
  return true;
}

/// Requires that Python goes on giving a float, and raises nothing.
bool require_float(const FollowedNumbers::Derivation& made, const Formula& formula, double value) {
  const Formula& last = made.last;
  switch (made.operation) {
    case Operation::kPower:
      if (!made.is_of_float || !is_kept(formula - formula)) return false;
      now().require(is_finite(formula), true);
      return true;
    case Operation::kSquareRoot:
      if (!std::isfinite(value)) return false;
      now().require(joined(last, trace::constant(0), Operation::kLess), false);
      return true;
    case Operation::kLogarithm:
    case Operation::kBinaryLogarithm:
    case Operation::kDecimalLogarithm:
    case Operation::kLogarithmOf1Plus: {
      if (!std::isfinite(value)) return false;
      const double pole = made.operation == Operation::kLogarithmOf1Plus ? -1 : 0;
      now().require(joined(trace::constant(pole), last, Operation::kLess), true);
      return true;
    }
    case Operation::kExponential:
    case Operation::kExponentialMinus1:
    case Operation::kHyperbolicCosine:
      if (!std::isfinite(value)) return false;
      now().require(joined(formula, trace::constant(DBL_MAX), Operation::kLessEqual), true);
      return true;
    case Operation::kHyperbolicSine:
      if (!std::isfinite(value) || !is_kept(formula - formula)) return false;
      now().require(is_finite(formula), true);
      return true;
    case Operation::kSine:
    case Operation::kCosine:
    case Operation::kTangent:
      if (!std::isfinite(value) || !is_kept(last - last)) return false;
      now().require(is_finite(last), true);
      return true;
    default:
      return true;
  }
}

/// The recording holds while the formula gives what it gave. False where it is too deep for that.
bool require_same(const Formula& formula, double value) {
  const Formula stays = trace::same_bits(formula, trace::constant(value));
  if (!trace::is_well_formed(stays, now().leaves().size())) return false;
  for (const trace::Index leaf : trace::leaves_of(formula)) now().note_held(leaf);
  now().require(stays, true);
  return true;
}

/// The same, but what follows from a read escapes with all that was read.
void pin(const Formula& formula, double value) {
  if (!trace::waits_for_read(formula, now().leaves()) && require_same(formula, value)) return;
  for (const trace::Index leaf : trace::leaves_of(formula)) {
    if (now().leaves()[leaf].kind == trace::LeafKind::kHostRead) now().note_held(leaf);
    now().said.escaped.insert(leaf);
  }
}

/// A class as a class statement makes it.
const PyTypeObject* any_class() {
  static const auto* const made =
      as_type(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Any"));
  return made;
}

/// What all objects of Python's classes are visited by.
traverseproc traverse_of_classes() { return any_class()->tp_traverse; }

trace::Value value_in_trace(PyObject* number) {
  if (PyFloat_Check(number)) return {trace::Real{PyFloat_AS_DOUBLE(number)}};
  return {static_cast<std::int64_t>(PyLong_AsLongLong(number))};
}

/// Those that an array of objects holds.
void add_objects_of_array(PyObject* array, std::vector<PyObject*>& found) {
  const py::object held = borrowed(array);
  if (!holds_objects(array) || has_fields(array)) return;  // of fields it makes new tuples
  // lists that hold one another, and in them what the array holds
  const py::object lists = held.attr("tolist")();
  py::ssize_t depth = py::cast<py::ssize_t>(held.attr("ndim"));
  std::vector<py::object> level{lists};
  for (; depth > 0; --depth) {
    std::vector<py::object> inner;
    for (const py::object& list : level) {
      for (const py::handle& item : list) inner.push_back(borrowed(item.ptr()));
    }
    level = std::move(inner);
  }
  for (const py::object& item : level) found.push_back(item.ptr());
}

}  // namespace

bool is_made_by_class(PyTypeObject* type) {
  return is_heap(type) &&
         (type->tp_traverse == nullptr || type->tp_traverse == traverse_of_classes());
}

bool can_become_another(PyTypeObject* type) {
  return is_heap(type) && type->tp_dealloc == any_class()->tp_dealloc;
}

bool leads_nowhere(PyObject* value) {
  return PyType_Check(value) || PyModule_Check(value) || PyFunction_Check(value) ||
         PyCode_Check(value) || PyFrame_Check(value) || PyGen_Check(value) ||
         PyCapsule_CheckExact(value) || PyUnicode_Check(value) || is_tensor(value);
}

bool is_partial(PyObject* value) {
  static auto* const partial = as_type(imported("functools", "partial"));
  return PyObject_TypeCheck(value, partial) != 0;
}

void add_held(PyObject* value, std::vector<PyObject*>& found) {
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
      found.push_back(PySequence_Fast_GET_ITEM(value, i));
  } else if (PyDict_Check(value)) {
    for (const auto [key, item] : Entries(value)) {
      found.push_back(key);
      found.push_back(item);
    }
  } else if (PySlice_Check(value)) {
    const auto* slice = reinterpret_cast<PySliceObject*>(value);
    for (PyObject* part : {slice->start, slice->stop, slice->step}) found.push_back(part);
  } else if (is_array(value)) {
    add_objects_of_array(value, found);
  } else {
    // of a class made of one of C's what that one holds is visited, too, and its attributes
    const PyTypeObject* type = Py_TYPE(value);
    while (type != nullptr && type->tp_traverse == traverse_of_classes()) type = type->tp_base;
    if (type == nullptr || type->tp_traverse == nullptr) return;
    const auto visit = [](PyObject* held, void* into) {
      static_cast<std::vector<PyObject*>*>(into)->push_back(held);
      return 0;
    };
    type->tp_traverse(value, visit, &found);
  }
}

bool is_number(PyObject* value) {
  return is_float(value) || PyLong_CheckExact(value) || PyBool_Check(value);
}

FollowedNumbers& FollowedNumbers::current() {
  // never destroyed: the interpreter may have ended when the thread does
  thread_local FollowedNumbers& numbers = *new FollowedNumbers();
  const recorder::FrontendHints* hints = recorder::FrontendHints::current();
  if (numbers.hints_ != hints) {
    numbers.clear();
    numbers.hints_ = hints;
  }
  return numbers;
}

void FollowedNumbers::clear() {
  for (const py::object& deque : std::exchange(lent_to_, {})) {
    for (Py_ssize_t i = 0; i < size_of(deque.ptr()); ++i) {
      const py::int_ place(i);
      const py::object item = held_at(deque.ptr(), place.ptr());
      if (contains(item.ptr())) put_at(deque.ptr(), place.ptr(), plain(item.ptr()).ptr());
    }
  }
  for (const auto& [number, known] : numbers_) Py_DECREF(number);
  numbers_.clear();
  watched_.clear();
}

const Formula* FollowedNumbers::formula_of(PyObject* number) const {
  const auto found = numbers_.find(number);
  return found == numbers_.end() ? nullptr : &found->second.formula;
}

bool FollowedNumbers::can_follow(PyObject* number) {
  return is_float(number) || (PyLong_CheckExact(number) && is_exact_int(number));
}

py::object FollowedNumbers::follow(PyObject* number, Formula formula) {
  if (hints_ == nullptr || !can_follow(number)) return borrowed(number);
  py::object made = is_float(number) ? float_of_class(Py_TYPE(number), PyFloat_AS_DOUBLE(number))
                                     : own_int(number);
  numbers_.emplace(made.ptr(), Number{std::move(formula), borrowed(number)});
  Py_INCREF(made.ptr());
  return made;
}

py::object FollowedNumbers::plain(PyObject* number) const {
  const auto found = numbers_.find(number);
  return found == numbers_.end() ? borrowed(number) : found->second.original;
}

void FollowedNumbers::let_go(PyObject* container) {
  const auto let_go_at = [&](PyObject* key) {
    const py::object number = held_at(container, key);
    if (!contains(number.ptr())) return;
    escape(number.ptr());
    put_at(container, key, plain(number.ptr()).ptr());
  };
  if (PyDict_Check(container)) {
    for (const auto& [key, value] : entries_of(container)) {
      if (contains(value)) let_go_at(key);
    }
  } else if (PyList_Check(container) || PyTuple_Check(container)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(container); ++i) {
      if (contains(PySequence_Fast_GET_ITEM(container, i))) let_go_at(py::int_(i).ptr());
    }
  }
}

std::optional<Formula> FollowedNumbers::formula_or_constant(PyObject* number) const {
  if (const Formula* formula = formula_of(number)) return *formula;
  if (PyFloat_Check(number) || is_exact_int(number)) return trace::constant(double_of(number));
  return std::nullopt;
}

std::optional<FollowedNumbers::Derivation> FollowedNumbers::derive(Operator made, PyObject* left,
                                                                   PyObject* right) {
  const bool is_any = contains(left) || (right != nullptr && contains(right));
  if (!is_any || !is_number(left) || (right != nullptr && !is_number(right))) return std::nullopt;
  Derivation derivation;
  derivation.escape = {left};
  derivation.is_of_float = PyFloat_Check(left);
  const std::optional<Operation> operation = operation_of(made);
  const std::optional<Formula> first = formula_or_constant(left);
  std::optional<Formula> second = Formula{};
  if (right != nullptr) {
    derivation.escape.push_back(right);
    derivation.is_of_float |= PyFloat_Check(right) != 0;
    second = formula_or_constant(right);
  }
  if (!operation || !first || !second) return derivation;
  const bool is_any_of_numpy = is_of_numpy(left) || (right != nullptr && is_of_numpy(right));
  const bool is_simple = *operation != Operation::kPower && *operation != Operation::kModulo &&
                         *operation != Operation::kFloorDivide;
  if (is_any_of_numpy && !is_simple) return derivation;
  derivation.operation = *operation;
  derivation.formula = joined(*first, *second, *operation);
  derivation.last = right == nullptr ? *first : *second;
  return derivation;
}

std::optional<FollowedNumbers::Derivation> FollowedNumbers::derive(Operation operation,
                                                                   PyObject* number,
                                                                   std::optional<double> by) {
  const Formula* formula = formula_of(number);
  if (formula == nullptr) return std::nullopt;
  Derivation derivation;
  derivation.escape = {number};
  if (by && is_of_numpy(number)) return derivation;  // it rounds in another way
  derivation.operation = operation;
  // kLeaf: the number itself, as another class
  derivation.formula = operation == Operation::kLeaf ? *formula
                       : by ? joined(*formula, trace::constant(*by), operation)
                            : applied(*formula, operation);
  derivation.last = *formula;
  derivation.is_of_float = PyFloat_Check(number);
  return derivation;
}

FollowedNumbers::Derivation FollowedNumbers::derive(const OfRead& made, const Formula& read) const {
  Derivation derivation;
  derivation.operation = made.operation;
  derivation.is_of_float = true;
  derivation.last = read;
  if (!made.other) {
    derivation.formula = applied(read, made.operation);
    return derivation;
  }
  derivation.escape = {made.other.ptr()};
  const std::optional<Formula> other = formula_or_constant(made.other.ptr());
  if (!other) return derivation;
  derivation.formula =
      made.is_first ? joined(read, *other, made.operation) : joined(*other, read, made.operation);
  if (made.is_first) derivation.last = *other;
  return derivation;
}

std::optional<FollowedNumbers::Derivation> FollowedNumbers::derive_extreme(
    bool is_max, const std::vector<PyObject*>& numbers) {
  const auto is_known = [this](PyObject* number) { return contains(number); };
  if (!std::ranges::any_of(numbers, is_known) || !std::ranges::all_of(numbers, &is_number)) {
    return std::nullopt;
  }
  Derivation derivation;
  derivation.operation = is_max ? Operation::kMaximum : Operation::kMinimum;
  derivation.escape = numbers;
  PyObject* best = nullptr;
  for (PyObject* number : numbers) {
    const std::optional<Formula> formula = formula_or_constant(number);
    if (!formula) {
      derivation.formula.reset();
      return derivation;
    }
    if (best == nullptr) {
      best = number;
      derivation.formula = formula;
      continue;
    }
    const bool is_other =
        is_max ? double_of(number) > double_of(best) : double_of(number) < double_of(best);
    if (Py_TYPE(best) == Py_TYPE(number)) {
      // Python keeps the first unless the second is greater
      derivation.formula = joined(*formula, *derivation.formula, derivation.operation);
    } else {
      compare(is_max ? Operator::kGreater : Operator::kLess, number, best, *formula,
              *derivation.formula);
      if (is_other) derivation.formula = formula;
    }
    if (is_other) best = number;
  }
  return derivation;
}

std::optional<FollowedNumbers::Derivation> FollowedNumbers::derive_sum(
    const std::vector<py::object>& numbers, PyObject* result) {
  const auto is_any = [this](const py::object& each) { return contains(each.ptr()); };
  const auto is_one = [](const py::object& each) { return is_number(each.ptr()); };
  if (!std::ranges::any_of(numbers, is_any) || !std::ranges::all_of(numbers, is_one))
    return std::nullopt;
  Derivation derivation;
  for (const py::object& each : numbers) derivation.escape.push_back(each.ptr());
  const auto is_numpys = [](const py::object& each) { return is_of_numpy(each.ptr()); };
  if (std::ranges::any_of(numbers, is_numpys)) return derivation;  // no rounding is kept of these
  derivation.operation = Operation::kSettle;
  derivation.is_of_float = result != nullptr && PyFloat_Check(result);
  // ints are added exactly, up to the first float; floats from 3.12 on with what rounding takes
  constexpr Operation kOfFloats =
      PY_VERSION_HEX >= 0x030C0000 ? Operation::kAccumulate : Operation::kAdd;
  constexpr std::size_t kMostInts = 64;
  Formula formula;
  Formula values;  // the same of what the numbers are now
  const auto apply = [&](Operation operation) {
    for (Formula* each : {&formula, &values}) each->nodes.push_back({operation, {}, trace::kNone});
  };
  bool is_float = false;
  std::size_t ints = 0;
  for (const py::object& each : numbers) {
    const bool is_next_float = PyFloat_Check(each.ptr());
    const std::optional<Formula> next = formula_or_constant(each.ptr());
    const bool are_ints = !is_float && !is_next_float;
    if (!next || (are_ints && ++ints > kMostInts)) return derivation;
    const bool is_partial = formula.nodes.size() > 1;
    if (are_ints && is_partial) {
      if (!is_kept(formula)) return derivation;
      require_small(formula);
    }
    formula.nodes.insert(formula.nodes.end(), next->nodes.begin(), next->nodes.end());
    values.nodes.push_back({Operation::kConstant, {double_of(each.ptr())}, trace::kNone});
    if (&each != &numbers.front()) apply(is_float && is_next_float ? kOfFloats : Operation::kAdd);
    is_float |= is_next_float;
    if (formula.nodes.size() > kMostNodes) return derivation;
  }
  if (is_float && kOfFloats == Operation::kAccumulate) apply(Operation::kSettle);
  const bool is_this = result != nullptr && can_follow(result) &&
                       trace::Real{trace::evaluate(values, {})} == trace::Real{double_of(result)};
  if (is_this) derivation.formula = std::move(formula);
  return derivation;
}

namespace {

constexpr std::size_t kMostOfNumpy = 64;  // terms

/// In the order of NumPy, which has eight sums for up to 128 numbers
/// (numpy/_core/src/umath/loops_utils.h.src, `pairwise_sum`).
template <typename Term, typename Add>
Term add_as_numpy(const std::vector<Term>& terms, const Term& zero, const Add& add) {
  constexpr std::size_t kSums = 8;
  const std::size_t count = terms.size() < kSums ? 1 : kSums;
  std::vector<Term> sums(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(count));
  std::size_t next = count;
  for (; count == kSums && next + kSums <= terms.size(); next += kSums) {
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = add(sums[i], terms[next + i]);
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2)) {  // each with its neighbour
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = add(sums[2 * i], sums[2 * i + 1]);
  }
  for (; next < terms.size(); ++next) sums[0] = add(sums[0], terms[next]);
  return add(zero, sums[0]);
}

/// Tried out with numbers of many magnitudes, of which other orders make other sums.
bool adds_as_numpy(std::size_t count) {
  static std::array<std::optional<bool>, kMostOfNumpy + 1> known;
  if (known[count]) return *known[count];
  static PyObject* const add = imported("numpy", "add");
  std::mt19937_64 draw(count);
  known[count] = true;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::vector<double> terms(count, -0.0);
    for (double& term : terms) {
      if (i > 0) term = std::ldexp(static_cast<double>(draw()), static_cast<int>(draw() % 40));
      if (i > 0 && draw() % 2 == 0) term = -term;
    }
    const double sum = add_as_numpy(terms, 0.0, std::plus<>());
    const double made = py::cast<double>(borrowed(add).attr("reduce")(py::cast(terms)));
    known[count] = *known[count] && trace::Real{made} == trace::Real{sum};
  }
  return *known[count];
}

}  // namespace

std::optional<Formula> FollowedNumbers::sum_of_numpy(const std::vector<Formula>& numbers,
                                                     bool is_mean) {
  if (numbers.empty() || numbers.size() > kMostOfNumpy || !adds_as_numpy(numbers.size())) return {};
  const auto add = [](const Formula& a, const Formula& b) { return joined(a, b, Operation::kAdd); };
  const Formula sum = add_as_numpy(numbers, trace::constant(0), add);
  if (!is_mean) return sum;
  return joined(sum, trace::constant(static_cast<double>(numbers.size())), Operation::kDivide);
}

py::object FollowedNumbers::take(const Derivation& made, PyObject* result) {
  const bool is_result = result != nullptr && is_number(result);
  if (is_result && PyBool_Check(result) && made.formula) return {};  // of max and min
  if (is_result && made.formula && is_kept(*made.formula)) {
    Formula formula = *made.formula;
    const bool divides = made.operation == Operation::kDivide ||
                         made.operation == Operation::kModulo ||
                         made.operation == Operation::kFloorDivide;
    bool is_known = true;
    // a negative exponent makes a float of two ints
    if (made.operation == Operation::kPower && !made.is_of_float)
      now().require(joined(trace::constant(0), made.last, Operation::kLessEqual),
                    PyLong_Check(result));
    if (PyLong_Check(result)) {
      if (may_give_negative_zero(made.operation)) formula = formula + trace::constant(0);
      is_known =
          is_exact_int(result) && std::abs(double_of(result)) <= kLargestResult && is_kept(formula);
      const bool is_extreme =
          made.operation == Operation::kMaximum || made.operation == Operation::kMinimum;
      if (is_known && !is_extreme) require_small(formula);
    } else {
      is_known = require_float(made, formula, PyFloat_AS_DOUBLE(result));
      if (is_known && is_of_numpy(result) && made.operation != Operation::kLeaf)
        is_known = require_normal(formula, PyFloat_AS_DOUBLE(result));
    }
    if (is_known) {
      if (divides) {
        now().require(joined(made.last, trace::constant(0), Operation::kEqual), false);
      }
      py::object followed = follow(result, std::move(formula));
      if (made.is_held) return followed;
      Number& number = numbers_.at(followed.ptr());
      number.original = PyLong_Check(result) ? py::object(py::int_(PyLong_AsLongLong(result)))
                                             : py::object(followed);
      return followed;
    }
  }
  for (PyObject* number : made.escape) escape_one(number);
  return {};
}

void FollowedNumbers::compare(Operator operation, PyObject* left, PyObject* right,
                              const Formula& of_left, const Formula& of_right) {
  const bool swaps = operation == Operator::kGreater || operation == Operator::kGreaterEqual;
  const bool is_negated = operation == Operator::kNotEqual;
  const bool is_equality = operation == Operator::kEqual || is_negated;
  const bool is_strict = operation == Operator::kLess || operation == Operator::kGreater;
  const Operation made = is_equality ? Operation::kEqual
                         : is_strict ? Operation::kLess
                                     : Operation::kLessEqual;
  const Formula formula = swaps ? joined(of_right, of_left, made) : joined(of_left, of_right, made);
  if (operation == Operator::kOther || !is_kept(formula)) {
    escape_one(left);
    escape_one(right);
    return;
  }
  double a = double_of(left);
  double b = double_of(right);
  if (swaps) std::swap(a, b);
  // a NaN makes every comparison false, so that what was found is required as it is
  now().require(formula, is_equality ? a == b : is_strict ? a < b : a <= b);
}

bool FollowedNumbers::compare(Operator operation, PyObject* left, PyObject* right) {
  if (!contains(left) && !contains(right)) return false;
  if (!is_number(left) || !is_number(right)) return false;
  const std::optional<Formula> first = formula_or_constant(left);
  const std::optional<Formula> second = formula_or_constant(right);
  if (first && second) {
    compare(operation, left, right, *first, *second);
  } else {
    escape_one(left);
    escape_one(right);
  }
  return true;
}

void FollowedNumbers::require_in_order(const Formula& a, const Formula& b) {
  now().require(joined(a, b, Operation::kLessEqual), true);
}

bool FollowedNumbers::compare_each(Operator operation, PyObject* number, PyObject* container) {
  constexpr std::size_t kMost = 64;
  static PyObject* const name = PyUnicode_InternFromString("__contains__");
  const bool is_dict = PyDict_Check(container) && _PyType_Lookup(Py_TYPE(container), name) ==
                                                      _PyType_Lookup(&PyDict_Type, name);
  const bool is_known = PyTuple_CheckExact(container) || PyList_CheckExact(container) ||
                        PyAnySet_CheckExact(container) || is_dict;
  if (!contains(number) || !is_known) return false;
  const auto items = py::reinterpret_steal<py::list>(is_dict ? PyDict_Keys(container)
                                                             : PySequence_List(container));
  if (!items || items.size() > kMost) {
    PyErr_Clear();
    return false;
  }
  const auto is_other = [operation](const py::handle& item) {
    const bool is_unequal = PyUnicode_CheckExact(item.ptr()) || item.is_none();
    return !is_number(item.ptr()) && !(operation == Operator::kEqual && is_unequal);
  };
  if (std::ranges::any_of(items, is_other)) return false;
  for (const py::handle& item : items) {
    if (is_number(item.ptr())) compare(operation, number, item.ptr());
  }
  return true;
}

void FollowedNumbers::test(PyObject* number) {
  const Formula* formula = formula_of(number);
  if (formula == nullptr) return;
  now().require(joined(*formula, trace::constant(0), Operation::kEqual), double_of(number) == 0);
}

bool FollowedNumbers::test_class(std::string_view name, PyObject* number) {
  const Formula* formula = formula_of(number);
  if (formula == nullptr) return false;
  const double value = double_of(number);
  return test_class(name, *formula,
                    name == "isfinite" ? std::isfinite(value)
                    : name == "isnan"  ? std::isnan(value)
                                       : std::isinf(value));
}

bool FollowedNumbers::test_class(std::string_view name, const Formula& formula, bool found) {
  if (!is_kept(formula - formula)) return false;
  if (name == "isfinite") {
    now().require(is_finite(formula), found);
  } else if (name == "isnan") {
    now().require(joined(formula, formula, Operation::kEqual), !found);
  } else if (name == "isinf") {
    now().require(joined(applied(formula, Operation::kAbsolute), trace::constant(HUGE_VAL),
                         Operation::kEqual),
                  found);
  } else {
    return false;
  }
  return true;
}

void FollowedNumbers::escape_one(PyObject* number) {
  const auto found = numbers_.find(number);
  if (found == numbers_.end() || std::exchange(found->second.has_escaped, true)) return;
  pin(found->second.formula, double_of(number));
}

void FollowedNumbers::escape_all() {
  for (const auto& [number, known] : numbers_) escape_one(number);
  for (const auto& [object, known] : watched_) read(object);
}

bool FollowedNumbers::read(PyObject* object) const {
  if (watched_.empty()) return false;
  const auto found = watched_.find(object);
  if (found == watched_.end()) return false;
  found->second.was_read = true;
  return true;
}

void FollowedNumbers::hold(PyObject* number) {
  const Formula* formula = formula_of(number);
  if (formula != nullptr && !require_same(*formula, double_of(number))) escape(number);
}

namespace {

/// Who has a partial (of no class made of that) of code of Python's can only call it, which gives
/// that code what it holds: the numbers by themselves may be asked for, too. Nothing for any other
/// object.
std::optional<std::vector<PyObject*>> numbers_of_partial(PyObject* value) {
  if (!is_partial(value) || is_made_by_class(Py_TYPE(value))) return std::nullopt;
  const py::object function = member(value, "func"), arguments = member(value, "args");
  const py::object named = member(value, "keywords");
  if (!function || !PyFunction_Check(function.ptr()) || !arguments || !named) return std::nullopt;
  std::vector<PyObject*> held;
  add_held(arguments.ptr(), held);
  add_held(named.ptr(), held);
  std::erase_if(held, [](PyObject* each) {
    return !is_number(each) && !FollowedNumbers::current().watches(each);
  });
  return held;
}

}  // namespace

void FollowedNumbers::escape(PyObject* value) {
  if (is_empty() || value == nullptr) return;
  std::vector<PyObject*> open{value};
  std::unordered_set<PyObject*> seen;
  while (!open.empty()) {
    PyObject* next = open.back();
    open.pop_back();
    if (next == nullptr) continue;
    if (is_number(next)) {
      escape_one(next);
      continue;
    }
    if (read(next)) continue;
    if (leads_nowhere(next) || !seen.insert(next).second) continue;
    if (seen.size() > kMostObjects) return escape_all();
    if (const auto numbers = numbers_of_partial(next)) {
      open.insert(open.end(), numbers->begin(), numbers->end());
    } else {
      add_held(next, open);
    }
  }
}

std::vector<recorder::FrontendHints::Number> FollowedNumbers::among(
    std::span<PyObject* const> values) const {
  std::vector<recorder::FrontendHints::Number> found;
  const auto look = [&](const auto& self, PyObject* value, trace::Index item, int depth) -> void {
    if (const Formula* formula = formula_of(value)) {
      found.push_back({value_in_trace(value), *formula, item});
    } else if (read(value)) {
      return;
    } else if (depth > 0 && (PyList_Check(value) || PyTuple_Check(value))) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
        self(self, PySequence_Fast_GET_ITEM(value, i), static_cast<trace::Index>(i), depth - 1);
      }
    } else if (depth > 0 && PyDict_Check(value)) {
      for (const auto& [key, held] : entries_of(value)) self(self, held, trace::kNone, depth - 1);
    } else if (PySlice_Check(value)) {
      const auto* slice = reinterpret_cast<PySliceObject*>(value);
      for (PyObject* part : {slice->start, slice->stop, slice->step}) {
        self(self, part, trace::kNone, depth);
      }
    }
  };
  constexpr int kDepth = 32;
  if (is_empty()) return found;
  for (PyObject* value : values) look(look, value, trace::kNone, kDepth);
  return found;
}

void FollowedNumbers::escape(const std::vector<recorder::FrontendHints::Number>& numbers) {
  for (const recorder::FrontendHints::Number& number : numbers) {
    pin(number.formula, trace::number_of(number.value));
  }
}

std::optional<std::int64_t> FollowedNumbers::advance_of(PyObject* number, trace::LeafKind kind,
                                                        const std::string& path) const {
  const Formula* formula = formula_of(number);
  if (formula == nullptr || !PyLong_Check(number)) return std::nullopt;
  struct Part {
    int times;  ///< how often the counter
    double besides;
  };
  std::vector<Part> parts;
  for (const trace::Node& node : formula->nodes) {
    if (node.operation == Operation::kLeaf) {
      const trace::Leaf& leaf = now().leaves()[node.leaf];
      parts.push_back(leaf == trace::Leaf{kind, path} ? Part{1, 0} : Part{2, 0});
    } else if (node.operation == Operation::kConstant) {
      parts.push_back({0, node.constant.value});
    } else if (node.operation == Operation::kAdd || node.operation == Operation::kSubtract) {
      const int sign = node.operation == Operation::kAdd ? 1 : -1;
      const Part last = parts.back();
      parts.pop_back();
      parts.back().times += sign * last.times;
      parts.back().besides += sign * last.besides;
    } else {
      return std::nullopt;
    }
  }
  const Part& whole = parts.front();
  if (whole.times != 1 || whole.besides != std::floor(whole.besides)) return std::nullopt;
  return static_cast<std::int64_t>(whole.besides);
}

bool holds_followed(PyObject* value) {
  if (!PyTuple_Check(value)) return is_followed(value);
  std::vector<PyObject*> open{value};  // they may be nested without end
  while (!open.empty()) {
    PyObject* const tuple = open.back();
    open.pop_back();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      PyObject* const item = PyTuple_GET_ITEM(tuple, i);
      if (PyTuple_Check(item)) {
        open.push_back(item);
      } else if (is_followed(item)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace steptape::python
