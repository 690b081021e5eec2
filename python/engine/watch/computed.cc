#include <algorithm>
#include <array>
#include <string_view>

#include "python/engine/watch/call.h"
#include "python/engine/watch/watcher.h"
#include "recorder/frontend_hints.h"

/// Numbers that functions make of followed ones: as a formula where it is known what they compute,
/// else by calling them again as each call begins. And those that are looked up in containers then.
namespace steptape::python::watch {
namespace {

/// What functions of one number compute; kLeaf: the number itself, as another class.
struct Function {
  std::string_view name;
  trace::Operation operation;
};
constexpr std::array<Function, 23> kFunctions = {{
    {"sqrt", trace::Operation::kSquareRoot},
    {"exp", trace::Operation::kExponential},
    {"log", trace::Operation::kLogarithm},
    {"sin", trace::Operation::kSine},
    {"cos", trace::Operation::kCosine},
    {"log2", trace::Operation::kBinaryLogarithm},
    {"log10", trace::Operation::kDecimalLogarithm},
    {"log1p", trace::Operation::kLogarithmOf1Plus},
    {"expm1", trace::Operation::kExponentialMinus1},
    {"tan", trace::Operation::kTangent},
    {"atan", trace::Operation::kArcTangent},
    {"sinh", trace::Operation::kHyperbolicSine},
    {"cosh", trace::Operation::kHyperbolicCosine},
    {"tanh", trace::Operation::kHyperbolicTangent},
    {"floor", trace::Operation::kFloor},
    {"ceil", trace::Operation::kCeiling},
    {"trunc", trace::Operation::kTruncate},
    {"fabs", trace::Operation::kAbsolute},
    {"abs", trace::Operation::kAbsolute},
    {"round", trace::Operation::kRound},
    {"int", trace::Operation::kTruncate},
    {"float", trace::Operation::kLeaf},
    {"numpy.float64", trace::Operation::kLeaf},
}};

/// The code of a generator, or of the function of Python's that `map` calls, borrowed; or null.
PyObject* code_that_gives(PyObject* iterator) {
  if (PyGen_CheckExact(iterator)) return member(iterator, "gi_code").ptr();  // which it holds
  if (Py_TYPE(iterator) != &PyMap_Type) return nullptr;
  std::vector<PyObject*> held;
  add_held(iterator, held);
  for (PyObject* each : held) {
    if (PyMethod_Check(each)) each = PyMethod_GET_FUNCTION(each);
    if (PyFunction_Check(each)) return PyFunction_GET_CODE(each);
  }
  return nullptr;
}

/// Functions of NumPy's besides those for each element by themselves that give one number for
/// numbers and lists of them.
constexpr std::string_view kOfNumpy =
    "amax amin average clip interp max mean median min prod round std sum var";

/// Whether what a function gives depends on nothing but numbers that it is given, and NumPy's
/// switches for what it warns of.
bool is_of_numbers_alone(PyObject* function) {
  if (PyCFunction_Check(function)) {
    PyObject* from = reinterpret_cast<PyCFunctionObject*>(function)->m_module;
    if (from == nullptr || !PyUnicode_Check(from)) return false;
    const std::string_view module = view_of(from);
    const std::string_view name = reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
    constexpr std::string_view kOperators = "pow mod floordiv and_ or_ xor";
    // they are called for any number, and may take for ever where the program asks for none
    constexpr std::string_view kSlow = "factorial comb perm";
    if (is_of_math(function)) return !is_one_of(name, kSlow);
    return (module == "builtins" && name == "round") ||
           (module == "_operator" && is_one_of(name, kOperators));
  }
  const std::string_view type = Py_TYPE(function)->tp_name;
  const bool is_element_wise = type == "numpy.ufunc";
  if (!is_element_wise && type != "numpy._ArrayFunctionDispatcher") return false;
  const auto numpy = stolen(PyImport_GetModule(py::str("numpy").ptr()));
  const py::object name = member(function, "__name__");
  if (!numpy || !name || !PyUnicode_CheckExact(name.ptr())) return false;
  // `frompyfunc` makes one of any code of Python's
  PyObject* known = find_entry(PyModule_GetDict(numpy.ptr()), name.ptr());
  return known == function && (is_element_wise || is_one_of(view_of(name.ptr()), kOfNumpy));
}

}  // namespace

std::optional<std::size_t> Watcher::changed_content(PyObject* container) const {
  const auto found = noted_.find(id_of(Kind::kContent, container, nullptr));
  const bool is_changed = found != noted_.end() && slots_->slot(found->second).is_changed;
  return is_changed ? std::optional(found->second) : std::nullopt;
}

std::optional<Py_ssize_t> Watcher::size_before(PyObject* container) const {
  if (written_entries_.contains(container)) return std::nullopt;
  const std::optional<std::size_t> content = changed_content(container);
  if (!content) return size_of(container);
  if (!slots_->slot(*content).is_appended_to || is_bounded(container)) return std::nullopt;
  return slots_->size_when_met(*content);
}

std::optional<Py_ssize_t> Watcher::position_before(PyObject* sequence, Py_ssize_t at) const {
  const std::optional<Py_ssize_t> before = size_before(sequence);
  if (at >= 0) return before && at >= *before ? std::nullopt : std::optional(at);
  const std::optional<std::size_t> content = changed_content(sequence);
  if (!content || !slots_->slot(*content).is_appended_to) return at;
  // a full queue has dropped as many
  const Py_ssize_t added = before ? size_of(sequence) - *before : slots_->slot(*content).appended;
  return at + added < 0 ? std::optional(at + added) : std::nullopt;
}

bool Watcher::has_written_items(PyObject* container) const {
  return std::ranges::any_of(slots_->slots(), [container](const Slot& slot) {
    return slot.owner.get() == container &&
           (slot.is_written || (slot.is_changed && !slot.is_appended_to));
  });
}

std::optional<FollowedNumbers::Derivation> Watcher::follow_item_from_the_end(PyObject* sequence,
                                                                             Py_ssize_t at) {
  const std::optional<Py_ssize_t> before = position_before(sequence, at);
  const py::object item = held_at(sequence, py::int_(at).ptr());
  if (!before || !item || !is_plain_number(item.ptr())) return std::nullopt;
  if (!FollowedNumbers::can_follow(item.ptr()) || is_followed(item.ptr())) return std::nullopt;
  const trace::Formula place = trace::constant(static_cast<double>(*before));
  const MovingPlaces::Item* found = find_held(sequence, {{.numbers = {{place, &PyLong_Type}}}},
                                              PyFloat_AsDouble(item.ptr()), item.ptr());
  return found == nullptr ? std::nullopt : std::optional(follow_held(*found, item.ptr()));
}

void Watcher::lend_windows() {
  FollowedNumbers& numbers = FollowedNumbers::current();
  for (const auto& [deque, path] : moving_.windows()) {
    note(Kind::kContent, deque, nullptr, path, false);  // with its own numbers
    numbers.lend_to(deque);
    for (Py_ssize_t at = -size_of(deque); at < 0; ++at) {
      const py::int_ place(at);
      const py::object item = held_at(deque, place.ptr());
      if (!FollowedNumbers::can_follow_given(item.ptr())) continue;
      if (const auto number = follow_item_from_the_end(deque, at))
        put_at(deque, place.ptr(), numbers.follow(item.ptr(), *number->formula).ptr());
    }
  }
}

bool Watcher::load_window(PyObject* deque) {
  constexpr Py_ssize_t kMost = 128;
  const Py_ssize_t size = is_bounded(deque) ? size_of(deque) : 0;
  if (size == 0 || size > kMost || has_written_items(deque)) return false;
  bool are_followed = true;
  for (Py_ssize_t at = -size; at < 0; ++at) {
    const py::object item = held_at(deque, py::int_(at).ptr());
    if (is_followed(item.ptr()) || !position_before(deque, at)) continue;
    are_followed = false;
    follow_item_from_the_end(deque, at);  // the next recordings do
  }
  if (are_followed) load_size(deque);
  return are_followed;
}

std::optional<bool> Watcher::follow_from_the_end(PyObject* sequence, PyObject* key) {
  const bool is_slice = PySlice_Check(key) && PyList_CheckExact(sequence);
  const bool is_one = PyLong_CheckExact(key) && is_from_the_end(key) && !is_followed(key);
  if (!is_slice && !is_one) return std::nullopt;
  const bool is_known = PyList_CheckExact(sequence) || type_name(sequence) == "collections.deque";
  if (!is_known || !exists(sequence) || !size_before(sequence) || has_written_items(sequence))
    return std::nullopt;
  if (is_slice) return follow_slice(sequence, key);
  auto number = follow_item_from_the_end(sequence, PyNumber_AsSsize_t(key, nullptr));
  if (!number) return std::nullopt;
  awaited_.back().number = std::move(number);
  return true;
}

std::optional<bool> Watcher::follow_slice(PyObject* list, PyObject* slice) {
  constexpr Py_ssize_t kMost = 64;
  const auto* bounds = reinterpret_cast<PySliceObject*>(slice);
  const auto from_the_end = [](PyObject* bound) {
    return PyLong_CheckExact(bound) && !is_followed(bound) && is_from_the_end(bound);
  };
  const bool is_to_the_end = bounds->stop == Py_None;
  if (!from_the_end(bounds->start) || bounds->step != Py_None) return std::nullopt;
  if (!is_to_the_end && !from_the_end(bounds->stop)) return std::nullopt;
  const Py_ssize_t size = PyList_GET_SIZE(list);
  const Py_ssize_t start = PyNumber_AsSsize_t(bounds->start, nullptr);
  const Py_ssize_t first = std::max(start, -size);
  const Py_ssize_t end = is_to_the_end ? 0 : PyNumber_AsSsize_t(bounds->stop, nullptr);
  if (first >= end || end - first > kMost) return std::nullopt;
  if (start < first) load_size(list);  // one that is longer has others before these
  for (Py_ssize_t at = first; at < end; ++at) {
    if (auto number = follow_item_from_the_end(list, at)) {
      awaited_.back().items.emplace_back(at - first, std::move(*number));
    } else {
      load_item_at(list, py::int_(at).ptr());
    }
  }
  return !awaited_.back().items.empty();
}

bool Watcher::follow_item(PyObject* container, PyObject* key) {
  const trace::Formula* formula = FollowedNumbers::current().formula_of(key);
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  if (formula == nullptr || slots_ == nullptr || hints == nullptr) return false;
  const bool is_known = PyList_CheckExact(container) || PyTuple_CheckExact(container) ||
                        PyDict_CheckExact(container) || is_array_of_numpy(container);
  if (!is_known || !PyLong_CheckExact(key) || !exists(container)) return false;
  const py::object item = held_at(container, key);
  if (!item || is_followed(item.ptr())) return false;
  const bool is_number = is_plain_number(item.ptr());
  // tensors in a tuple are state that is known by its path
  const bool holds_arguments = PyList_Check(container) || PyDict_Check(container);
  if (!is_number && !(holds_arguments && may_be_argument(item.ptr()))) return false;
  // what stands there now may have been written in the step
  if (has_written_items(container) || size_before(container) != size_of(container)) return false;
  const MovingPlaces::Item* found = find_held(container, {{.numbers = {{*formula, &PyLong_Type}}}},
                                              PyLong_AsDouble(key), item.ptr());
  if (found == nullptr) return false;
  if (!is_number) return true;  // an argument
  awaited_.back().number = follow_held(*found, item.ptr());
  awaited_.back().number->escape = {key};
  return true;
}

const MovingPlaces::Item* Watcher::find_held(PyObject* container,
                                             std::vector<MovingPlaces::Item::Argument> at,
                                             double newest, PyObject* now) {
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  if (hints == nullptr) return nullptr;
  const MovingPlaces::Item* found = moving_.find_item(path_of(container), container, std::move(at),
                                                      {newest}, hints->leaves(), now);
  if (found != nullptr) slots_->hold_containers();
  return found;
}

FollowedNumbers::Derivation Watcher::follow_held(const MovingPlaces::Item& item, PyObject* now) {
  FollowedNumbers::Derivation number;
  const trace::Index leaf =
      recorder::FrontendHints::current()->leaf(trace::LeafKind::kHostValue, item.name);
  number.formula = trace::leaf(leaf);
  number.is_of_float = PyFloat_Check(now);
  number.is_held = true;
  return number;
}

std::optional<FollowedNumbers::Derivation> Watcher::follow_size(PyObject* container) {
  const bool has_size = PyList_Check(container) || PyDict_Check(container) ||
                        PyAnySet_Check(container) || is_deque(container);
  if (!has_size || !exists(container) || !is_of_c(Py_TYPE(container), "__len__"))
    return std::nullopt;
  const std::optional<std::size_t> changed = changed_content(container);
  const bool drops_some = changed && slots_->slot(*changed).is_appended_to && is_bounded(container);
  const std::optional<Py_ssize_t> before =
      drops_some ? slots_->size_when_met(*changed) : size_before(container);
  if (!before) return std::nullopt;
  const py::int_ size(*before);
  const MovingPlaces::Item* found =
      find_held(container, {}, static_cast<double>(*before), size.ptr());
  if (found == nullptr) return std::nullopt;
  FollowedNumbers::Derivation number = follow_held(*found, size.ptr());
  const Py_ssize_t added =
      drops_some ? slots_->slot(*changed).appended : size_of(container) - *before;
  if (added != 0) number.formula = *number.formula + trace::constant(static_cast<double>(added));
  if (drops_some) {
    number.formula = trace::joined(*number.formula, trace::constant(most_of(container)),
                                   trace::Operation::kMinimum);
  }
  return number;
}

bool Watcher::test_size(PyObject* container) {
  if (in_class(Py_TYPE(container), "__bool__") != nullptr) return false;
  const auto size = follow_size(container);
  if (!size) return false;
  FollowedNumbers::current().compare(Operator::kGreater, py::int_(size_of(container)).ptr(),
                                     py::int_(0).ptr(), *size->formula, trace::constant(0));
  return true;
}

bool Watcher::call_len(PyObject* object) {
  look_up(object, "__len__");
  PyObject* own = in_class(Py_TYPE(object), "__len__");
  if (own != nullptr && PyFunction_Check(own)) {
    awaited_.back().adds = PyFunction_GET_CODE(own);
    awaited_.back().added.emplace();
    awaited_.back().is_largest = true;  // the one number that it gives
    return true;
  }
  if (auto size = follow_size(object)) {
    awaited_.back().number = std::move(size);
    return true;
  }
  load_size(object);
  return false;
}

std::optional<bool> Watcher::compute_operator(std::string_view name,
                                              std::span<PyObject* const> arguments) {
  struct Row {
    std::string_view name;
    Operator made;
  };
  constexpr std::array<Row, 7> kBinary = {{{"add", Operator::kAdd},
                                           {"sub", Operator::kSubtract},
                                           {"mul", Operator::kMultiply},
                                           {"truediv", Operator::kDivide},
                                           {"floordiv", Operator::kFloorDivide},
                                           {"mod", Operator::kModulo},
                                           {"pow", Operator::kPower}}};
  constexpr std::array<Row, 6> kComparing = {{{"lt", Operator::kLess},
                                              {"le", Operator::kLessEqual},
                                              {"gt", Operator::kGreater},
                                              {"ge", Operator::kGreaterEqual},
                                              {"eq", Operator::kEqual},
                                              {"ne", Operator::kNotEqual}}};
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (arguments.size() != 2) return std::nullopt;
  const auto comparing = std::ranges::find(kComparing, name, &Row::name);
  if (comparing != kComparing.end() &&
      numbers.compare(comparing->made, arguments[0], arguments[1])) {
    return false;
  }
  const auto binary = std::ranges::find(kBinary, name, &Row::name);
  if (binary == kBinary.end()) return std::nullopt;
  auto number = numbers.derive(binary->made, arguments[0], arguments[1]);
  if (!number) return std::nullopt;
  awaited_.back().number = std::move(number);
  return true;
}

std::optional<bool> Watcher::compute(std::string_view name, std::string_view module,
                                     std::span<PyObject* const> arguments) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (module == "_bisect" && arguments.size() == 2 && PyList_CheckExact(arguments[0])) {
    const bool is_left = name == "bisect_left";
    const bool only_looks = is_left || name == "bisect_right" || name == "bisect";
    const Operator operation = is_left ? Operator::kGreater : Operator::kLess;
    if (only_looks && numbers.compare_each(operation, arguments[1], arguments[0])) return false;
  }
  if (module == "_operator") return compute_operator(name, arguments);
  const bool is_known = module.empty() || module == "math" || module == "builtins";
  if (!is_known || arguments.empty()) return std::nullopt;
  if (arguments.size() == 1 && is_tensor(arguments[0]) && (name == "float" || name == "int")) {
    // as item() does, but for what int() cuts off
    if (name == "int" && tensor_of(arguments[0]).is_floating_point())
      awaited_.back().of_read = {trace::Operation::kTruncate, {}, true};
    return begin_ops({}, Reads::kFollowed);
  }
  if (module == "math" && std::ranges::any_of(arguments, &is_tensor))
    return compute_of_tensor(name, arguments);
  if (module == "builtins" && name == "sum" && arguments.size() <= 2) return compute_sum(arguments);
  if (module == "builtins" && (name == "max" || name == "min") && arguments.size() == 1 &&
      !exists(arguments[0])) {
    if (PyObject* code = code_that_gives(arguments[0])) {
      awaited_.back().adds = code;
      awaited_.back().added.emplace();
      awaited_.back().is_largest = name == "max";
      return true;
    }
  }
  if (numbers.is_empty()) return std::nullopt;
  std::optional<FollowedNumbers::Derivation>& number = awaited_.back().number;
  const bool is_max = name == "max";
  if (is_max || name == "min") {
    std::vector<PyObject*> among(arguments.begin(), arguments.end());
    if (arguments.size() == 1) {
      const bool is_queue = type_name(arguments[0]) == "collections.deque";
      if (!PyList_CheckExact(arguments[0]) && !PyTuple_CheckExact(arguments[0]) && !is_queue)
        return std::nullopt;
      const auto list = stolen(PySequence_List(arguments[0]));  // which holds what is in it
      if (!list) throw py::error_already_set();
      PyObject** items = PySequence_Fast_ITEMS(list.ptr());
      among.assign(items, items + PySequence_Fast_GET_SIZE(list.ptr()));
    }
    number = numbers.derive_extreme(is_max, among);
    if (number) return true;
    // tensors compare themselves with numbers
    if (std::ranges::any_of(among, &is_tensor)) return begin_ops(arguments, Reads::kGiven, name);
    return std::nullopt;
  }
  // that of math gives a float, which the formula's is, too
  if (name == "pow" && !module.empty() && arguments.size() == 2) {
    number = numbers.derive(Operator::kPower, arguments[0], arguments[1]);
    if (number) number->is_of_float |= module == "math";
    return number ? std::optional(true) : std::nullopt;
  }
  if (name == "round" && arguments.size() == 2 && PyLong_CheckExact(arguments[1]) &&
      !is_followed(arguments[1])) {
    constexpr double kMostDecimals = 22;
    const double decimals = PyLong_AsDouble(arguments[1]);
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (decimals < 0 || decimals > kMostDecimals) return std::nullopt;
    number = numbers.derive(trace::Operation::kRoundTo, arguments[0], decimals);
    if (number && !number->formula) number.reset();  // NumPy rounds in another way
    return number ? std::optional(true) : std::nullopt;
  }
  if (arguments.size() != 1 || !numbers.contains(arguments[0])) return std::nullopt;
  if (name == "bool") {
    numbers.test(arguments[0]);
    return false;
  }
  if (module == "math" && numbers.test_class(name, arguments[0])) return false;
  const Function* function = std::ranges::find(kFunctions, name, &Function::name);
  if (function == kFunctions.end()) return std::nullopt;
  number = numbers.derive(function->operation, arguments[0]);
  return true;
}

bool Watcher::follow_call(const Call& made) {
  const FollowedNumbers& numbers = FollowedNumbers::current();
  if (numbers.is_empty() || slots_ == nullptr || made.names.size() != made.named.size())
    return false;
  NumberCall call{.function = made.callee};
  const auto add = [&](PyObject* number, MovingPlaces::Item::Argument& argument) {
    const auto formula = is_number(number) ? numbers.formula_or_constant(number) : std::nullopt;
    if (!formula) return false;
    argument.numbers.push_back({*formula, Py_TYPE(number)});
    call.numbers.push_back(PyFloat_AsDouble(number));
    if (numbers.contains(number)) call.followed.push_back(number);
    return true;
  };
  const auto take = [&](PyObject* value, std::string keyword) {
    MovingPlaces::Item::Argument& argument = call.arguments.emplace_back();
    argument.keyword = std::move(keyword);
    if (value == Py_None) return true;
    const bool is_queue = is_deque(value);
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value) && !is_queue)
      return add(value, argument);
    constexpr Py_ssize_t kMost = 64;
    if (size_of(value) > kMost) return false;
    argument.sequence = is_queue ? &PyList_Type : Py_TYPE(value);
    const py::object list = list_of(value);
    PyObject** const items = PySequence_Fast_ITEMS(list.ptr());
    return std::all_of(items, items + PyList_GET_SIZE(list.ptr()),
                       [&](PyObject* item) { return add(item, argument); });
  };
  for (PyObject* value : made.arguments) {
    if (!take(value, "")) return false;
  }
  for (std::size_t i = 0; i < made.named.size(); ++i) {
    if (!take(made.named[i], text_of(made.names[i]))) return false;
  }
  if (call.followed.empty() || !is_of_numbers_alone(made.callee)) return false;
  if (!is_of_math(made.callee) && !can_call_numpy()) return false;
  load_arguments(made, false);
  Awaited& awaited = awaited_.back();
  call.path = path_of(made.callee);
  awaited.of_numbers = std::move(call);
  // it is called again, whatever its own code of Python's reads
  awaited.is_unwatched = true;
  ++unwatched_;
  return true;
}

bool Watcher::test_by_numpy(const Call& made) {
  const bool is_one = made.arguments.size() == 1 && made.named.empty();
  if (!is_one || !is_followed(made.arguments[0]) || !is_of_numbers_alone(made.callee)) return false;
  const py::object name = member(made.callee, "__name__");
  return FollowedNumbers::current().test_class(view_of(name.ptr()), made.arguments[0]);
}

bool Watcher::follow_operator(const Instruction& in) {
  constexpr std::array kRows = {std::pair{Operator::kPower, "pow"},
                                std::pair{Operator::kModulo, "mod"},
                                std::pair{Operator::kFloorDivide, "floordiv"},
                                std::pair{Operator::kAnd, "and_"},
                                std::pair{Operator::kOr, "or_"},
                                std::pair{Operator::kXor, "xor"}};
  const auto row = std::ranges::find(kRows, in.made, &std::pair<Operator, const char*>::first);
  if (row == kRows.end()) return false;
  const char* const name = row->second;
  const auto function = module_named("operator").attr(name);  // held by its module
  if (!follow_call({.callee = function.ptr(), .arguments = {in.first, in.second}})) return false;
  awaited_.back().of_numbers->path = std::string("operator.") + name;
  return true;
}

void Watcher::end_call(const NumberCall& made, PyObject** result) {
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  PyObject* const given = result == nullptr ? nullptr : *result;
  FollowedNumbers::Derivation number;
  number.escape = made.followed;
  const bool is_one =
      given != nullptr && is_plain_number(given) && FollowedNumbers::can_follow(given);
  const MovingPlaces::Item* item = hints == nullptr || !is_one
                                       ? nullptr
                                       : moving_.find_item(made.path, made.function, made.arguments,
                                                           made.numbers, hints->leaves(), given);
  if (item != nullptr) {
    number.formula = trace::leaf(hints->leaf(trace::LeafKind::kHostValue, item->name));
    number.is_of_float = PyFloat_Check(given);
  } else if (is_one && PyFloat_Check(given)) {
    number.formula = sum_or_mean(made);
    number.operation = trace::Operation::kAdd;
    number.is_of_float = true;
  }
  take_number(number, result);
}

/// Of numbers that were not known as the call began, as those that the step has read from tensors.
std::optional<trace::Formula> Watcher::sum_or_mean(const NumberCall& made) {
  const py::object name = member(made.function, "__name__");
  const bool is_mean = name && view_of(name.ptr()) == "mean";
  if (!is_mean && !(name && view_of(name.ptr()) == "sum")) return {};
  if (made.arguments.size() != 1 || made.arguments[0].sequence == nullptr) return {};
  std::vector<trace::Formula> terms;
  for (const auto& [formula, type] : made.arguments[0].numbers) {
    if (PyType_IsSubtype(type, &PyFloat_Type) == 0) return {};
    terms.push_back(formula);
  }
  return FollowedNumbers::sum_of_numpy(terms, is_mean);
}

std::optional<bool> Watcher::compute_sum(std::span<PyObject* const> arguments) {
  std::vector<py::object> added;
  added.push_back(arguments.size() == 2 ? borrowed(arguments[1]) : py::object(py::int_(0)));
  PyObject* const from = arguments[0];
  const bool is_container = PyList_CheckExact(from) || PyTuple_CheckExact(from) ||
                            Py_TYPE(from) == &PyDictValues_Type ||
                            type_name(from) == "collections.deque";
  if (is_container) {
    const auto items = py::reinterpret_steal<py::list>(PySequence_List(from));
    if (!items) throw py::error_already_set();
    for (const py::handle& item : items) added.push_back(borrowed(item.ptr()));
    const auto are = [&added](auto test) {
      return std::ranges::any_of(added, [&](const py::object& each) { return test(each.ptr()); });
    };
    if (!are(&is_followed) || are([](PyObject* each) { return !is_number(each); }))
      return std::nullopt;
  } else if (PyObject* code = exists(from) ? nullptr : code_that_gives(from)) {
    awaited_.back().adds = code;
  } else {
    return std::nullopt;
  }
  awaited_.back().added = std::move(added);
  return true;
}

bool Watcher::add_up(const Instruction& in) {
  if (awaited_.empty() || !awaited_.back().added || !in.is_own) return false;
  if (reinterpret_cast<PyObject*>(in.code) != awaited_.back().adds) return false;
  // of anything else it is enough that it was there: nothing is kept alive here
  awaited_.back().added->push_back(is_number(in.first) ? borrowed(in.first) : py::none());
  return is_number(in.first);
}

void Watcher::end_sum(const Awaited& awaited, PyObject** result) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  const std::vector<py::object>& added = *awaited.added;
  PyObject* const made = result == nullptr ? nullptr : *result;
  if (awaited.is_largest) {
    std::vector<PyObject*> among;
    for (const py::object& each : added) among.push_back(each.ptr());
    if (const auto extreme = numbers.derive_extreme(*awaited.is_largest, among))
      return take_number(*extreme, result);
  } else if (const auto sum = numbers.derive_sum(added, made)) {
    return take_number(*sum, result);
  }
  for (const py::object& each : added) numbers.escape(each.ptr());
}

void Watcher::take_number(const FollowedNumbers::Derivation& derivation, PyObject** result) {
  PyObject* const made = result == nullptr ? nullptr : *result;
  if (py::object number = FollowedNumbers::current().take(derivation, made))
    Py_DECREF(std::exchange(*result, number.release().ptr()));
}

/// The number in a tensor, which math's function reads first, and another one.
std::optional<bool> Watcher::compute_of_tensor(std::string_view name,
                                               std::span<PyObject* const> arguments) {
  Awaited& awaited = awaited_.back();
  if (name == "pow" && arguments.size() == 2) {
    const bool is_first = is_tensor(arguments[0]);
    PyObject* other = arguments[is_first ? 1 : 0];
    if (!is_number(other)) return std::nullopt;
    awaited.of_read = {trace::Operation::kPower, borrowed(other), is_first};
  } else if (arguments.size() != 1) {
    return std::nullopt;
  } else if (name == "isfinite" || name == "isnan" || name == "isinf") {
    awaited.tested = name;
  } else {
    const Function* function = std::ranges::find(kFunctions, name, &Function::name);
    if (function == kFunctions.end()) return std::nullopt;
    awaited.of_read = {function->operation, {}, true};
  }
  return begin_ops({}, Reads::kFollowed);
}
}  // namespace steptape::python::watch
