#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/engine/python.h"
#include "python/engine/watch/instruction.h"
#include "recorder/frontend_hints.h"
#include "trace/formula.h"

namespace steptape::python {

/// Whether it is an int, a float or a bool, and of no class made of these.
bool is_number(PyObject* value);

/// The numbers of a program that are followed while a step is recorded: hyperparameters, counters,
/// arguments, host values, what was read from tensors, and what arithmetic has made of these. They
/// are ordinary ints and floats; what they follow from is kept beside them, by their identity. So
/// each is an object of its own, small ints too, and is held for as long as it is followed.
///
/// Formulas are computed in double precision in the program's order, so that their bits are
/// Python's: a result is followed where what makes that so can be required, and its operands
/// escape where it cannot. One that goes where nobody follows it escapes: the recording holds for
/// the value that it has.
///
/// Used by the thread that runs the step, under the GIL.
class FollowedNumbers {
 public:
  /// Those of this thread: none where no recording is under way, or another than before.
  static FollowedNumbers& current();

  bool is_empty() const { return numbers_.empty() && watched_.empty(); }
  void clear();
  /// Null where it is not followed.
  const trace::Formula* formula_of(PyObject* number) const;
  bool contains(PyObject* number) const { return numbers_.contains(number); }

  /// None for an int that no double holds.
  std::optional<trace::Formula> formula_or_constant(PyObject* number) const;
  /// Not a bool, nor an int that a double does not hold: it must stay what it is.
  static bool can_follow(PyObject* number);
  /// The same of one that the program holds: of a NaN it may ask which it is.
  static bool can_follow_given(PyObject* number) {
    return can_follow(number) && !(PyFloat_Check(number) && std::isnan(PyFloat_AS_DOUBLE(number)));
  }
  /// A number of the same value and class that follows the formula; `number` itself where it is
  /// none that can be followed.
  py::object follow(PyObject* number, trace::Formula formula);
  /// What stood in the place of this one before it was followed; of an int that was computed, what
  /// Python has for that value. The number itself where it is not followed.
  py::object plain(PyObject* number) const;

  /// Whether the recording holds for what it is.
  bool has_escaped(PyObject* number) const {
    const auto found = numbers_.find(number);
    return found != numbers_.end() && found->second.has_escaped;
  }

  /// A deque holds followed numbers in the place of its own, until these are cleared.
  void lend_to(PyObject* deque) { lent_to_.push_back(borrowed(deque)); }
  bool is_lent_to(PyObject* deque) const {
    return std::ranges::any_of(lent_to_, [deque](const auto& each) { return each.ptr() == deque; });
  }

  /// Stops following those in a container that is reached in another way, too.
  void let_go(PyObject* container);

  /// What is about to be computed of followed numbers.
  struct Derivation {
    std::optional<trace::Formula> formula;  ///< where there is one
    trace::Operation operation = trace::Operation::kLeaf;
    trace::Formula last;            ///< the last operand
    bool is_of_float = false;       ///< whether an operand is one
    bool is_held = false;           ///< the result is what the program holds, and not a new object
    std::vector<PyObject*> escape;  ///< where it comes to nothing
  };
  /// Of `left` with `right`, which is null where the operator has one operand; none where these are
  /// no numbers, or none of them is followed.
  std::optional<Derivation> derive(watch::Operator operation, PyObject* left, PyObject* right);
  /// Of a function that gives one number for one, or for one and a number that is not followed.
  std::optional<Derivation> derive(trace::Operation operation, PyObject* number,
                                   std::optional<double> by = std::nullopt);
  /// What a function makes of a number that it has read from a tensor, with another one or null.
  struct OfRead {
    trace::Operation operation;
    py::object other;  ///< a number
    bool is_first;     ///< the one that is read comes before the other
  };
  Derivation derive(const OfRead& made, const trace::Formula& read) const;
  /// Of `max` or `min`.
  std::optional<Derivation> derive_extreme(bool is_max, const std::vector<PyObject*>& numbers);
  /// Of `sum`, which has added these up, the number that it starts from first, and has given
  /// `result`; null where it has thrown. No formula where that is not what they come to.
  std::optional<Derivation> derive_sum(const std::vector<py::object>& numbers, PyObject* result);
  /// Of NumPy's `sum`, or its `mean`, of floats that follow these formulas. None where this NumPy
  /// adds in another order than those that are known, or these are too many.
  static std::optional<trace::Formula> sum_of_numpy(const std::vector<trace::Formula>& numbers,
                                                    bool is_mean);
  /// What takes the place of the result, which is null where there was none. Null: it stays.
  py::object take(const Derivation& derivation, PyObject* result);
  /// Requires what a comparison found. False where these are not numbers, or none is followed.
  bool compare(watch::Operator operation, PyObject* left, PyObject* right);
  /// Of two numbers that follow these formulas, whatever they are in Python.
  void compare(watch::Operator operation, PyObject* left, PyObject* right,
               const trace::Formula& of_left, const trace::Formula& of_right);
  /// Requires what was found of a number beside each of those in a tuple, list, set or dict:
  /// whether it is one of them, or where it stands among them. False where there are too many, or
  /// it holds something else.
  bool compare_each(watch::Operator operation, PyObject* number, PyObject* container);
  /// Requires that `a` is not above `b`, which it is not.
  static void require_in_order(const trace::Formula& a, const trace::Formula& b);
  /// Requires what the test of a number found.
  void test(PyObject* number);
  /// Requires what `isfinite`, `isnan` or `isinf` found. False for another name, or a number that
  /// is not followed.
  bool test_class(std::string_view name, PyObject* number);
  static bool test_class(std::string_view name, const trace::Formula& formula, bool found);

  /// Whatever is in `value` goes where it is not followed. Of containers and objects of C's all
  /// that they hold does, of objects of Python's classes nothing. Runs none of the program's code.
  void escape(PyObject* value);
  /// The recording holds while what this number follows from, if it does, gives what it is.
  void hold(PyObject* number);

  /// From here on it is seen whether anything looks at this object, a text or the like that the
  /// step is given: such a one is not followed, and escapes by the first look but at its class.
  void watch(PyObject* object) { watched_.emplace(object, Watched{borrowed(object)}); }
  bool watches_any() const { return !watched_.empty(); }
  bool watches(PyObject* object) const { return watched_.contains(object); }
  /// Looks at it. False for what is not watched.
  bool read(PyObject* object) const;
  bool was_read(PyObject* object) const {
    const auto found = watched_.find(object);
    return found != watched_.end() && found->second.was_read;
  }

  /// Those in what a function of torch's is given.
  std::vector<recorder::FrontendHints::Number> among(std::span<PyObject* const> values) const;
  /// They were announced to the recorder and entered no op.
  static void escape(const std::vector<recorder::FrontendHints::Number>& numbers);

  /// What was added to leaf (kind, path), where a followed int is that and nothing else.
  std::optional<std::int64_t> advance_of(PyObject* number, trace::LeafKind kind,
                                         const std::string& path) const;

 private:
  struct Number {
    trace::Formula formula;
    py::object original;  ///< or null
    bool has_escaped = false;
  };

  void escape_one(PyObject* number);
  void escape_all();

  struct Watched {
    py::object object;
    bool was_read = false;
  };

  std::unordered_map<PyObject*, Number> numbers_;  ///< with a reference each
  std::vector<py::object> lent_to_;
  mutable std::unordered_map<PyObject*, Watched> watched_;
  const recorder::FrontendHints* hints_ = nullptr;
};

/// Whether a class statement has made it: many of C's own are on the heap from CPython 3.12 on.
bool is_made_by_class(PyTypeObject* type);

/// Whether an object of it may be given another class: those that class statements make.
bool can_become_another(PyTypeObject* type);

/// Whether nothing is looked for in what one holds: of a class, a module, a function or a tensor.
bool leads_nowhere(PyObject* value);

/// Appends the objects that one holds and that code of C's may look at, borrowed.
void add_held(PyObject* value, std::vector<PyObject*>& found);
/// Whether it is a functools.partial, or of a class made of that.
bool is_partial(PyObject* value);

inline bool is_followed(PyObject* number) { return FollowedNumbers::current().contains(number); }

/// Whether it is a number that is followed, or a tuple that holds one.
bool holds_followed(PyObject* value);

}  // namespace steptape::python
