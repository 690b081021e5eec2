#include "python/engine/moving.h"

#include <structmember.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "python/engine/plain.h"
#include "python/engine/structure.h"

namespace steptape::python {
namespace {

Py_ssize_t position_in(PyObject* sequence, PyObject* key) {
  if (!PyLong_Check(key)) return -1;
  Py_ssize_t position = PyNumber_AsSsize_t(key, nullptr);  // the nearest, of one that is none
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
  if (position < 0) position += size;
  return position < size ? position : -1;
}

/// Of a deque.
py::object item_of(PyObject* queue, PyObject* key) {
  if (!PyLong_Check(key)) return {};
  return taken(PySequence_GetItem(queue, PyNumber_AsSsize_t(key, nullptr)));
}

std::optional<double> number_in(PyObject* value) {
  if (value == nullptr || !is_plain_number(value)) return std::nullopt;
  const double number = PyFloat_AsDouble(value);
  if (PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return std::nullopt;
}

/// Whether `a` and `b` are plain numbers of one class with the same bits.
bool are_same_numbers(PyObject* a, PyObject* b) {
  if (!is_plain_number(a) || !is_plain_number(b) || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyLong_CheckExact(a)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  return trace::Real{PyFloat_AS_DOUBLE(a)} == trace::Real{PyFloat_AS_DOUBLE(b)};
}

/// The formula over those of the leaves that it reads, which `read` takes.
trace::Formula over_own_leaves(trace::Formula formula, std::span<const trace::Leaf> leaves,
                               std::vector<trace::Leaf>& read) {
  for (trace::Index& leaf : trace::leaves_of(formula)) {
    const auto found = std::ranges::find(read, leaves[leaf]);
    const auto position = static_cast<trace::Index>(found - read.begin());
    if (found == read.end()) read.push_back(leaves[leaf]);
    leaf = position;
  }
  return formula;
}

}  // namespace

std::string free_name(const std::string& path, const std::vector<std::string>& taken) {
  std::string name = path;
  for (int i = 2; std::ranges::find(taken, name) != taken.end(); ++i) {
    name = path + "#" + std::to_string(i);
  }
  return name;
}

PyObject* holder_of(PyObject* type, PyObject* key) {
  for (PyTypeObject* base : bases_of(as_type(type))) {
    const py::object dict = dict_of_type(base);
    if (PyDict_GetItemWithError(dict.ptr(), key) != nullptr)
      return reinterpret_cast<PyObject*>(base);
  }
  return nullptr;
}

bool is_same_key(PyObject* a, PyObject* b) {
  if (a == b || a == nullptr || b == nullptr || Py_TYPE(a) != Py_TYPE(b)) return a == b;
  if (!PyUnicode_CheckExact(a) && !PyLong_CheckExact(a)) return false;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

bool is_of_math(PyObject* function) {
  PyObject* module = PyCFunction_Check(function)
                         ? reinterpret_cast<PyCFunctionObject*>(function)->m_module
                         : nullptr;
  return module != nullptr && PyUnicode_Check(module) && text_of(module) == "math";
}

bool is_member(PyObject* key) {
  return key != nullptr &&
         (Py_TYPE(key) == &PyMemberDescr_Type || Py_TYPE(key) == &PyGetSetDescr_Type);
}

bool is_read_only(PyObject* key) {
  if (key != nullptr && Py_TYPE(key) == &PyMemberDescr_Type)
    return (reinterpret_cast<PyMemberDescrObject*>(key)->d_member->flags & READONLY) != 0;
  return is_member(key) && reinterpret_cast<PyGetSetDescrObject*>(key)->d_getset->set == nullptr;
}

bool is_plain_number(PyObject* value) {
  return value != nullptr && (is_float(value) || PyLong_CheckExact(value));
}

py::object float_of_class(PyTypeObject* type, double value) {
  if (type == &PyFloat_Type) return py::float_(value);
  auto made = stolen(PyObject_CallFunction(reinterpret_cast<PyObject*>(type), "d", value));
  if (!made) throw py::error_already_set();
  return made;
}

py::object held_at(PyObject* owner, PyObject* key) {
  if (is_member(key)) return taken(Py_TYPE(key)->tp_descr_get(key, owner, nullptr));
  if (PyCell_Check(owner)) return borrowed(PyCell_GET(owner));
  if (key == nullptr) return is_array(owner) ? borrowed(owner) : py::object();
  if (is_array_of_numpy(owner))
    return taken(PySequence_GetItem(owner, PyNumber_AsSsize_t(key, nullptr)));
  if (PyDict_Check(owner)) return borrowed(find_entry(owner, key));
  if (PyList_Check(owner) || (PyTuple_Check(owner) && PyLong_Check(key))) {
    const Py_ssize_t position = position_in(owner, key);
    return position < 0 ? py::object() : borrowed(PySequence_Fast_GET_ITEM(owner, position));
  }
  if (is_deque(owner)) return item_of(owner, key);
  if (PyType_Check(owner)) return borrowed(_PyType_Lookup(as_type(owner), key));
  return taken(PyObject_GenericGetAttr(owner, key));
}

int set_entry(PyObject* dict, PyObject* key, PyObject* value) {
  // its own order would not know of what is put into the dict below it
  return PyODict_Check(dict) ? PyODict_SetItem(dict, key, value) : PyDict_SetItem(dict, key, value);
}

void put_in_class(PyTypeObject* type, PyObject* key, PyObject* value) {
  int failed = 0;
  if (view_of(key).starts_with("__")) {
    failed = PyType_Type.tp_setattro(reinterpret_cast<PyObject*>(type), key, value);
  } else {  // a descriptor of the metaclass's is not asked
    failed = PyDict_SetItem(dict_of_type(type).ptr(), key, value);
    PyType_Modified(type);
  }
  if (failed != 0) throw py::error_already_set();
}

void put_at(PyObject* owner, PyObject* key, PyObject* value) {
  int failed = 0;
  if (is_member(key)) {
    failed = Py_TYPE(key)->tp_descr_set(key, owner, value);
  } else if (PyCell_Check(owner)) {
    failed = PyCell_Set(owner, value);
  } else if (PyDict_Check(owner)) {
    failed = set_entry(owner, key, value);
  } else if (PyList_Check(owner)) {
    const Py_ssize_t position = position_in(owner, key);
    failed = position < 0 ? PyObject_SetItem(owner, key, value)
                          : PyList_SetItem(owner, position, Py_NewRef(value));
  } else if (PyTuple_Check(owner) && PyLong_Check(key)) {
    const Py_ssize_t position = position_in(owner, key);
    Py_DECREF(std::exchange(PySequence_Fast_ITEMS(owner)[position], Py_NewRef(value)));
  } else if (is_deque(owner)) {
    failed = PyObject_SetItem(owner, key, value);
  } else if (PyType_Check(owner)) {
    PyObject* holder = holder_of(owner, key);
    put_in_class(as_type(holder == nullptr ? owner : holder), key, value);
  } else {
    failed = PyObject_GenericSetAttr(owner, key, value);
  }
  if (failed != 0) throw py::error_already_set();
}

void append_to(PyObject* owner, PyObject* item) {
  if (PyList_Check(owner)) {
    if (PyList_Append(owner, item) != 0) throw py::error_already_set();
  } else {
    borrowed(owner).attr("append")(borrowed(item));
  }
}

namespace {

/// Of an argument, among the leaves of a call.
std::optional<std::size_t> position_of(const trace::Leaf& argument) {
  constexpr std::string_view kBefore = "inputs[";
  std::size_t position = 0;
  if (!argument.path.starts_with(kBefore)) return std::nullopt;
  const char* const end = argument.path.data() + argument.path.size();
  const auto read = std::from_chars(argument.path.data() + kBefore.size(), end, position);
  return read.ec == std::errc() ? std::optional(position) : std::nullopt;
}

}  // namespace

const MovingPlaces::Place* MovingPlaces::find(PyObject* owner, PyObject* key) const {
  const auto found = std::ranges::find_if(places_, [&](const Place& place) {
    return place.owner.get() == owner && is_same_key(place.key.get(), key);
  });
  return found == places_.end() ? nullptr : &*found;
}

std::vector<py::object> MovingPlaces::given() {
  for (const std::size_t position : given_) {
    if (places_[position].item) look_up_all(*places_[position].item);
  }
  return left();
}

std::vector<py::object> MovingPlaces::left() const {
  std::vector<py::object> held;
  for (const std::size_t position : given_) {
    const Place& place = places_[position];
    held.push_back(place.item                     ? items_[*place.item].found
                   : place.owner.get() == nullptr ? py::object()
                                                  : held_at(place.owner.get(), place.key.get()));
  }
  return held;
}

bool MovingPlaces::looks_up_by_places(std::size_t own) const {
  const auto is_in_place = [own](const trace::Leaf& leaf) {
    return leaf.kind == trace::LeafKind::kArgument && position_of(leaf).value_or(0) >= own;
  };
  const auto is_found_so = [&](const Item& item) {
    return std::ranges::any_of(item.leaves, is_in_place);
  };
  const auto is_looked_up = [this](std::size_t position) {
    return places_[position].item.has_value();
  };
  return std::ranges::any_of(given_, is_looked_up) && std::ranges::any_of(items_, is_found_so);
}

void MovingPlaces::lose_items() {
  for (Item& item : items_) item.found = py::object();
}

std::vector<std::string> MovingPlaces::names_of_given() const {
  std::vector<std::string> names;
  for (const std::size_t position : given_) names.push_back(places_[position].name);
  return names;
}

namespace {

/// The first tensor that a value is or holds, however deep; null for none.
PyObject* first_tensor(PyObject* value, int depth = 4) {
  if (value == nullptr || depth == 0) return nullptr;
  if (is_tensor(value)) return value;
  PyObject* found = nullptr;
  if (PyList_Check(value) || PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value) && found == nullptr; ++i)
      found = first_tensor(PySequence_Fast_GET_ITEM(value, i), depth - 1);
    return found;
  }
  PyObject* dict = PyDict_Check(value) ? value : dict_of(value);
  if (dict == nullptr) return nullptr;
  for (const auto& [key, item] : entries_of(dict)) {
    if (found == nullptr) found = first_tensor(item, depth - 1);
  }
  return found;
}

}  // namespace

bool may_stand_for(PyObject* one, PyObject* other) {
  if (Py_TYPE(one) != Py_TYPE(other) || is_part_of_model(one)) return false;
  return PyList_Check(one) || PyDict_Check(one) || PySet_Check(one) || is_deque(one) ||
         is_plain_object(one);
}

void MovingPlaces::note_left(std::span<const py::object> given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    Place& place = given_at(i);
    PyObject* const value = given[i].ptr();
    if (place.is_left || place.left.empty()) continue;
    PyObject* const tensor = first_tensor(value);
    if (tensor == nullptr) continue;
    place.is_left = std::ranges::any_of(place.left, [tensor](const WeakTensor& left) {
      return left._unsafe_get_target() == tensor_of(tensor).unsafeGetTensorImpl();
    });
  }
}

std::optional<std::size_t> MovingPlaces::find_given(PyObject* owner, PyObject* key) const {
  const auto is_it = [&](std::size_t position) {
    const Place& place = places_[position];
    return place.owner.get() == owner && is_same_key(place.key.get(), key);
  };
  const auto found = std::ranges::find_if(given_, is_it);
  if (found == given_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - given_.begin());
}

void MovingPlaces::forget(PyObject* owner) {
  PyObject* dict = PyDict_Check(owner) ? owner : dict_of(owner);
  for (Place& place : places_) {
    if (place.owner.get() == owner || (dict != nullptr && place.owner.get() == dict))
      place.owner = Root();
  }
}

void MovingPlaces::drop_forgotten() {
  std::erase_if(places_,
                [](const Place& place) { return place.owner.get() == nullptr && !place.item; });
  find_given_places();
}

MovingPlaces::Place* MovingPlaces::add(const std::string& path, PyObject* owner, PyObject* key) {
  if (PyType_Check(owner) && !is_member(key)) owner = holder_of(owner, key);
  if (is_closed_ || owner == nullptr || places_.size() == kMost) return nullptr;
  if (find(owner, key) != nullptr || is_read_only(key)) return nullptr;
  const py::object held = held_at(owner, key);
  const bool is_number = held && is_plain_number(held.ptr());
  if (is_number && key != nullptr && PyUnicode_Check(key) && is_of_optimizer_(owner))
    return nullptr;
  places_.push_back({free_name(path, names()), Root::guarding(roots_, owner), Root(roots_, key),
                     !is_number,
                     is_number && is_float(held.ptr()) ? Py_TYPE(held.ptr()) : &PyFloat_Type});
  news_.push_back(places_.back().name);
  return &places_.back();
}

bool MovingPlaces::note(const std::string& path, PyObject* owner, PyObject* key, PyObject* was) {
  Place* place = add(path, owner, key);
  if (place == nullptr) return false;
  if (place->is_argument) given_.push_back(places_.size() - 1);
  if (place->is_argument && was != nullptr) place->was = Root::guarding(roots_, was);
  return true;
}

bool MovingPlaces::note_object(const std::string& path, PyObject* owner, PyObject* key,
                               PyObject* was) {
  Place* place = keeps_objects_ || is_optimizers_own_(owner) ? nullptr : add(path, owner, key);
  if (place == nullptr) return false;
  const py::object now = held_at(place->owner.get(), key);
  place->is_argument = false;
  place->object = Root::guarding(roots_, now.ptr());
  move_places(was, now.ptr());
  return true;
}

void MovingPlaces::move_places(PyObject* was, PyObject* now) {
  const auto move = [this](Root& owner, PyObject* from, PyObject* to) {
    if (from != nullptr && to != nullptr && owner.get() == from) owner = Root::guarding(roots_, to);
  };
  // unless it is elsewhere, too
  if (was == nullptr || was == now || Py_REFCNT(was) > roots_.count(was)) return;
  for (Place& place : places_) {
    move(place.owner, was, now);
    move(place.owner, dict_of(was), dict_of(now));
  }
  for (Item& item : items_) move(item.owner, was, now);
}

bool MovingPlaces::make_object(std::size_t given, PyObject* held) {
  Place& place = given_at(given);
  if (keeps_objects_ || held == nullptr || !may_stand_for(held, held)) return false;
  if (place.owner.get() == nullptr || held_at(place.owner.get(), place.key.get()).ptr() != held)
    return false;
  place.is_argument = false;
  place.is_left = false;
  place.left.clear();
  place.object = Root::guarding(roots_, held);
  move_places(std::exchange(place.was, Root()).get(), held);
  news_.push_back(place.name);
  find_given_places();
  return true;
}

void MovingPlaces::exchange() {
  if (keeps_objects_) return;
  bool has_more = true;  // what is in one may have been noted before it
  for (std::size_t round = 0; has_more && round < places_.size(); ++round) {
    has_more = false;
    for (const Place& place : places_) {
      PyObject* const was = place.object.get();
      if (was == nullptr || place.owner.get() == nullptr) continue;
      const py::object now = held_at(place.owner.get(), place.key.get());
      if (!now || now.ptr() == was || !may_stand_for(was, now.ptr())) continue;
      std::vector<std::pair<PyObject*, PyObject*>> pairs{{was, now.ptr()}};
      PyObject* const attributes = dict_of(was);
      if (attributes != nullptr && attributes != was) {
        // one of a class of containers may have been given none yet
        const auto others = stolen(PyObject_GenericGetDict(now.ptr(), nullptr));
        if (!others) throw py::error_already_set();
        pairs.emplace_back(attributes, others.ptr());
      }
      has_more |= roots_.replace(pairs);
    }
  }
}

bool MovingPlaces::holds_its_object(const Place& place) const {
  PyObject* const owner = place.owner.get();
  return owner != nullptr && held_at(owner, place.key.get()).ptr() == place.object.get();
}

void MovingPlaces::find_given_places() {
  given_.clear();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].is_argument) given_.push_back(i);
  }
}

PyTypeObject* MovingPlaces::expect_float(std::size_t position, PyObject* held) {
  Place& place = places_[position];
  PyTypeObject* expected = place.float_type;
  if (is_closed_ || held == nullptr || !is_float(held) || Py_TYPE(held) == expected)
    return expected;
  place.float_type = Py_TYPE(held);
  news_.push_back(place.name);
  return expected;
}

void MovingPlaces::rename(const std::vector<std::string>& taken) {
  for (Place& place : places_) {
    if (std::ranges::find(taken, place.name) == taken.end()) continue;
    std::vector<std::string> all = names();
    all.insert(all.end(), taken.begin(), taken.end());
    place.name = free_name(place.name, all);
  }
}

std::vector<std::string> MovingPlaces::names() const {
  std::vector<std::string> names;
  for (const Place& place : places_) names.push_back(place.name);
  for (const Item& item : items_) names.push_back(item.name);
  return names;
}

void MovingPlaces::set_arguments(const std::vector<pack::Leaf>& leaves) {
  if (items_.empty()) return;
  arguments_.clear();
  for (const pack::Leaf& leaf : leaves) {
    std::optional<double>& number = arguments_.emplace_back();
    if (const auto* real = std::get_if<double>(&leaf)) number = *real;
    if (const auto* integer = std::get_if<std::int64_t>(&leaf)) {
      number = static_cast<double>(*integer);
    }
  }
}

std::optional<double> MovingPlaces::number_of(const trace::Leaf& leaf) const {
  if (leaf.kind == trace::LeafKind::kArgument) {
    const std::optional<std::size_t> position = position_of(leaf);
    return position && *position < arguments_.size() ? arguments_[*position] : std::nullopt;
  }
  if (leaf.kind != trace::LeafKind::kHostValue) return std::nullopt;
  const auto place = std::ranges::find(places_, leaf.path, &Place::name);
  if (place != places_.end()) {
    PyObject* owner = place->owner.get();
    if (!place->is_followed() || owner == nullptr) return std::nullopt;
    return number_in(held_at(owner, place->key.get()).ptr());
  }
  const auto item = std::ranges::find(items_, leaf.path, &Item::name);
  return item == items_.end() ? std::nullopt : number_in(item->found.ptr());
}

namespace {

/// The number of this class; null for one that it does not hold.
py::object number_of_class(PyTypeObject* type, double value) {
  if (PyType_IsSubtype(type, &PyFloat_Type) != 0) return float_of_class(type, value);
  constexpr double kLargest = 9007199254740992;  // 2^53
  if (!(std::abs(value) <= kLargest) || std::trunc(value) != value) return {};
  if (type == &PyBool_Type) return py::bool_(value != 0);
  return py::int_(static_cast<long long>(value));
}

py::object argument_of(const MovingPlaces::Item::Argument& argument,
                       std::span<const double> leaves) {
  if (argument.numbers.empty() && argument.sequence == nullptr) return py::none();
  py::list numbers;
  for (const MovingPlaces::Item::Number& number : argument.numbers) {
    py::object made = number_of_class(number.type, trace::evaluate(number.formula, leaves));
    if (!made || argument.sequence == nullptr) return made;
    numbers.append(std::move(made));
  }
  if (argument.sequence == &PyTuple_Type) return py::tuple(numbers);
  return numbers;
}

struct Given {
  py::tuple positional;
  py::dict named;
};

/// None where a number is none of its class.
std::optional<Given> arguments_of(const MovingPlaces::Item& item, std::span<const double> leaves) {
  py::list positional;
  py::dict named;
  for (const MovingPlaces::Item::Argument& argument : item.arguments) {
    py::object made = argument_of(argument, leaves);
    if (!made) return std::nullopt;
    if (argument.keyword.empty()) {
      positional.append(std::move(made));
    } else {
      named[py::str(argument.keyword)] = std::move(made);
    }
  }
  return Given{py::tuple(positional), std::move(named)};
}

/// Whether the exception that is set may be what a function of numbers says of them. Any other one,
/// such as that of a signal's handler, is the program's.
bool is_of_numbers() {
  return PyErr_ExceptionMatches(PyExc_ArithmeticError) != 0 ||
         PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
         PyErr_ExceptionMatches(PyExc_TypeError) != 0 || PyErr_ExceptionMatches(PyExc_Warning) != 0;
}

/// NumPy's switches for what it warns of, a context variable, and the value by which it throws in
/// all cases; without Python code around a call, in which the handler of a signal might run.
struct Switches {
  PyObject* variable = nullptr;
  PyObject* throwing = nullptr;
};

/// None of a NumPy before 2.0, nor of one that has them elsewhere.
std::optional<Switches> switches_of_numpy() {
  static const std::optional<Switches> found = []() -> std::optional<Switches> {
    try {
      const py::object umath = module_named("numpy._core.umath");
      py::object variable = umath.attr("_extobj_contextvar");
      py::object throwing = umath.attr("_make_extobj")(py::arg("all") = "raise");
      if (!PyContextVar_CheckExact(variable.ptr())) return std::nullopt;
      return Switches{variable.release().ptr(), throwing.release().ptr()};
    } catch (const py::error_already_set&) {
      return std::nullopt;
    }
  }();
  return found;
}

/// What a function gives, null with an exception that is set.
py::object called(PyObject* function, const Given& arguments) {
  PyObject* named = arguments.named.empty() ? nullptr : arguments.named.ptr();
  return stolen(PyObject_Call(function, arguments.positional.ptr(), named));
}

/// The same. Where NumPy would warn, or call a function of the program's, it throws.
py::object call_strictly(PyObject* function, const Given& arguments) {
  const std::optional<Switches> switches = switches_of_numpy();
  if (!switches) return {};
  const auto token = stolen(PyContextVar_Set(switches->variable, switches->throwing));
  if (!token) throw py::error_already_set();
  py::object given = called(function, arguments);
  const py::error_scope error_of_function;
  if (PyContextVar_Reset(switches->variable, token.ptr()) != 0) throw py::error_already_set();
  return given;
}

/// What a function gives, null where it throws or where NumPy would warn: the program may not call
/// it at all this time, and its own switches say what comes of that. Throws what the handler of a
/// signal raises.
py::object given_by(PyObject* function, const Given& arguments) {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  py::object given =
      is_of_math(function) ? called(function, arguments) : call_strictly(function, arguments);
  if (given || PyErr_Occurred() == nullptr) return given;
  if (!is_of_numbers()) throw py::error_already_set();
  PyErr_Clear();
  return {};
}

std::string text_of(std::span<const MovingPlaces::Item::Argument> arguments,
                    std::span<const trace::Leaf> leaves) {
  const auto join = [](std::string& text, const std::string& next) {
    text += (text.empty() ? "" : ", ") + next;
  };
  std::string text;
  for (const MovingPlaces::Item::Argument& argument : arguments) {
    std::string own;
    for (const auto& number : argument.numbers) join(own, trace::text_of(number.formula, leaves));
    if (argument.sequence != nullptr) own = "[" + own + "]";
    if (own.empty()) own = "None";
    join(text, argument.keyword.empty() ? own : argument.keyword + "=" + own);
  }
  return text;
}

}  // namespace

bool is_from_the_end(PyObject* key) {
  return PyLong_Check(key) && PyNumber_AsSsize_t(key, nullptr) < 0;
}

bool can_call_numpy() { return switches_of_numpy().has_value(); }

py::object MovingPlaces::look_up(std::size_t position) {
  Item& item = items_[position];
  item.found = py::object();
  if (item.arguments.empty()) {
    if (item.owner.get() != nullptr) item.found = py::int_(size_of(item.owner.get()));
    return item.found;
  }
  std::vector<double> numbers;
  for (const trace::Leaf& leaf : item.leaves) {
    const std::optional<double> number = number_of(leaf);
    if (!number) return {};
    numbers.push_back(*number);
  }
  const std::optional<Given> arguments = arguments_of(item, numbers);
  PyObject* const owner = item.owner.get();
  if (owner == nullptr || !arguments) return {};
  item.found = PyCallable_Check(owner) != 0
                   ? given_by(owner, *arguments)
                   : held_at(owner, PyTuple_GET_ITEM(arguments->positional.ptr(), 0));
  return item.found;
}

py::object MovingPlaces::look_up_all(std::size_t position) {
  for (const trace::Leaf& leaf : items_[position].leaves) {
    const auto before = items_.begin() + static_cast<std::ptrdiff_t>(position);
    const auto found = std::find_if(items_.begin(), before, [&leaf](const Item& item) {
      return leaf.kind == trace::LeafKind::kHostValue && item.name == leaf.path;
    });
    if (found != before) look_up_all(static_cast<std::size_t>(found - items_.begin()));
  }
  return look_up(position);
}

std::map<PyObject*, std::string> MovingPlaces::windows() const {
  std::map<PyObject*, std::string> found;
  for (const Item& item : items_) {
    PyObject* const owner = item.owner.get();
    const bool is_place = item.moves && !item.is_argument && item.leaves.empty() &&
                          item.arguments.size() == 1 && owner != nullptr && is_bounded(owner);
    // the step does something else to it than to add items at its end
    const bool has_places = std::ranges::any_of(
        places_, [owner](const Place& place) { return place.owner.get() == owner; });
    if (is_place && !has_places) found.emplace(owner, item.name.substr(0, item.name.rfind('[')));
  }
  return found;
}

bool MovingPlaces::is_seen_growing(PyObject* owner) const {
  const auto from_the_end = [owner](const Place& place) {
    PyObject* const key = place.key.get();
    return place.owner.get() == owner && key != nullptr && is_from_the_end(key);
  };
  const auto by_itself = [owner](const Item& item) {
    return item.owner.get() == owner && item.leaves.empty() && item.moves;
  };
  return std::ranges::any_of(places_, from_the_end) || std::ranges::any_of(items_, by_itself);
}

const MovingPlaces::Item* MovingPlaces::find_item(const std::string& path, PyObject* owner,
                                                  std::vector<Item::Argument> arguments,
                                                  std::vector<double> newest,
                                                  std::span<const trace::Leaf> leaves,
                                                  PyObject* now) {
  std::vector<trace::Leaf> read;
  for (Item::Argument& argument : arguments) {
    for (Item::Number& number : argument.numbers)
      number.formula = over_own_leaves(std::move(number.formula), leaves, read);
  }
  const auto item = std::ranges::find_if(items_, [&](const Item& each) {
    return each.owner.get() == owner && each.arguments == arguments && each.leaves == read;
  });
  if (item != items_.end()) {
    if (!item->moves && !is_closed_ && item->newest != newest) {
      item->moves = true;
      news_.push_back(item->name);
      if (is_float(now)) item->float_type = Py_TYPE(now);
      item->is_argument = !is_plain_number(now) && places_.size() < kMost;
      if (item->is_argument) {
        given_.push_back(places_.size());
        places_.push_back({item->name, {}, {}, true, &PyFloat_Type});
        places_.back().item = static_cast<std::size_t>(item - items_.begin());
        places_.back().is_left = true;  // no player finds the next one
      }
    }
    const bool is_found =
        item->found && (item->found.ptr() == now || are_same_numbers(item->found.ptr(), now));
    return is_found ? &*item : nullptr;
  }
  // what the program has computed from a tensor in the step is not known as it begins
  const auto is_known = [this](const trace::Leaf& leaf) {
    const auto is_it = [&leaf](const auto& each) { return each.name == leaf.path; };
    return leaf.kind == trace::LeafKind::kArgument ||
           (leaf.kind == trace::LeafKind::kHostValue &&
            (std::ranges::any_of(places_, is_it) || std::ranges::any_of(items_, is_it)));
  };
  if (is_closed_ || items_.size() == kMost || !std::ranges::all_of(read, is_known)) return nullptr;
  const std::string text = text_of(arguments, read);
  const std::string name = arguments.empty()              ? "len(" + path + ")"
                           : PyCallable_Check(owner) != 0 ? path + "(" + text + ")"
                                                          : path + "[" + text + "]";
  items_.push_back({free_name(name, names()), Root::guarding(roots_, owner), std::move(arguments),
                    std::move(read), std::move(newest)});
  return nullptr;
}

}  // namespace steptape::python
