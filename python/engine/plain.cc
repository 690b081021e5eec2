#include "python/engine/plain.h"

#include <torch/csrc/Device.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/engine/followed.h"
#include "python/engine/moving.h"
#include "python/engine/structure.h"
#include "trace/path.h"

namespace steptape::python {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// A text or a device, of which equal ones do.
bool is_text_or_device(PyObject* object) {
  return PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || THPDevice_Check(object);
}

/// Of two objects of one exact built-in type: no code of the user's runs.
bool equal(PyObject* a, PyObject* b) {
  const int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) PyErr_Clear();
  return result == 1;
}

/// Keys are mostly strings, and mostly the very same ones.
bool same_key(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  return (is_text_or_device(a) || PyLong_CheckExact(a)) && equal(a, b);
}

/// Whether a dtype of NumPy's, or that of a field or an item of it, has metadata.
bool is_noted(const py::object& dtype) {
  if (!dtype.attr("metadata").is_none()) return true;
  if (const py::object part = dtype.attr("subdtype"); !part.is_none())
    return is_noted(part[py::int_(0)]);
  const py::object fields = dtype.attr("fields");
  if (fields.is_none()) return false;
  for (const py::handle field : fields.attr("values")()) {
    if (is_noted(field[py::int_(0)])) return true;
  }
  return false;
}

/// SimpleNamespace, argparse.Namespace and dataclasses: nothing but their attributes, by which they
/// are compared.
bool is_holder(PyObject* object) {
  static PyObject* simple = imported("types", "SimpleNamespace");
  static PyObject* parsed = imported("argparse", "Namespace");
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (dict_of(object) == nullptr) return false;
  if (type == simple || type == parsed) return true;
  return is_dataclass(object) && is_plain_object(object) &&
         Py_TYPE(object)->tp_richcompare != PyBaseObject_Type.tp_richcompare;
}

/// Whether a list, tuple or dict is its items, and of a defaultdict the factory, and nothing else.
bool is_items_alone(PyObject* container) {
  static PyObject* ordered = imported("collections", "OrderedDict");
  PyTypeObject* type = Py_TYPE(container);
  if (PyTuple_Check(container))
    return type->tp_basicsize == PyTuple_Type.tp_basicsize && type->tp_dictoffset == 0;
  return PyList_CheckExact(container) || PyDict_CheckExact(container) ||
         reinterpret_cast<PyObject*>(type) == ordered || is_default_dict(container);
}

Root class_of(Roots& roots, PyObject* object) {
  return {roots, reinterpret_cast<PyObject*>(Py_TYPE(object))};
}

}  // namespace

bool is_scalar_of_numpy(PyObject* object) {
  static PyObject* type = nullptr;
  if (type == nullptr) type = attribute_type("numpy", "generic");  // which may be imported later
  return type != nullptr && PyType_IsSubtype(Py_TYPE(object), as_type(type)) != 0;
}

bool is_compared_by_content(PyObject* object) {
  return PyList_CheckExact(object) || PyDict_CheckExact(object) || PyAnySet_CheckExact(object) ||
         (!is_tensor(object) && !is_fixed(object) && is_holder(object));
}

bool are_parts_apart(PyObject* container, const std::function<bool(PyObject*)>& out_of_question) {
  std::unordered_set<PyObject*> seen;
  std::vector<PyObject*> open{container};
  while (!open.empty()) {
    PyObject* const each = open.back();
    open.pop_back();
    const bool is_tuple = PyTuple_Check(each);
    if (!is_tuple && !is_compared_by_content(each) && !is_deque(each)) continue;
    if (!seen.insert(each).second || (out_of_question && out_of_question(each))) return false;
    PyObject* const dict = PyDict_Check(each) ? each : is_holder(each) ? dict_of(each) : nullptr;
    if (dict != nullptr) {
      for (const auto& [key, item] : entries_of(dict)) open.push_back(item);
    } else {
      const py::object items = list_of(each);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i)
        open.push_back(PyList_GET_ITEM(items.ptr(), i));
    }
  }
  return true;
}

bool is_default_dict(PyObject* object) {
  static PyObject* type = imported("collections", "defaultdict");
  return is_exactly(object, type);
}

py::object factory_of(PyObject* object) {
  static auto* const type = as_type(imported("collections", "defaultdict"));
  static PyObject* const factory = in_class(type, "default_factory");
  if (PyObject_TypeCheck(object, type) == 0) return {};
  return taken(Py_TYPE(factory)->tp_descr_get(factory, object, nullptr));
}

bool is_dead_reference(PyObject* object) {
  return object != nullptr && PyWeakref_CheckRefExact(object) && referent_of(object) == Py_None;
}

bool is_deque(PyObject* object) {
  static PyObject* type = imported("collections", "deque");
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

double most_of(PyObject* deque) {
  const py::object most = member(deque, "maxlen");
  return most && PyLong_Check(most.ptr()) ? PyLong_AsDouble(most.ptr())
                                          : std::numeric_limits<double>::infinity();
}

bool is_bounded(PyObject* object) { return is_deque(object) && std::isfinite(most_of(object)); }

bool is_plain_key(PyObject* key) {
  if (is_text_or_device(key) || PyLong_CheckExact(key) || PyFloat_CheckExact(key) ||
      PyBool_Check(key)) {
    return true;
  }
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      if (!is_plain_key(PyTuple_GET_ITEM(key, i))) return false;
    }
    return true;
  }
  // by its identity
  return Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash &&
         Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

PyObject* find_entry(PyObject* dict, PyObject* key) {
  if (is_plain_key(key)) return PyDict_GetItemWithError(dict, key);
  for (const auto& [found, item] : entries_of(dict)) {
    if (found == key) return item;
  }
  return nullptr;
}

namespace {

enum class Compared { kByIdentity, kByC, kByPython };

/// What says whether a key is equal to another one.
Compared how_compared(PyObject* key) {
  PyTypeObject* const type = Py_TYPE(key);
  if (is_tensor(key) || type->tp_richcompare == PyBaseObject_Type.tp_richcompare)
    return Compared::kByIdentity;
  for (const char* method : {"__eq__", "__hash__"}) {
    PyObject* own = _PyType_Lookup(type, interned(method).ptr());
    if (own == nullptr || Py_TYPE(own) != &PyWrapperDescr_Type) return Compared::kByPython;
  }
  if (PyTuple_Check(key) || PyFrozenSet_CheckExact(key)) {
    std::vector<PyObject*> items;
    add_held(key, items);
    const bool is_of_c = std::ranges::none_of(
        items, [](PyObject* item) { return how_compared(item) == Compared::kByPython; });
    return is_of_c ? Compared::kByC : Compared::kByPython;
  }
  const auto is_naive = [key] { return borrowed(key).attr("tzinfo").is_none(); };
  const std::string& name = type_name(type);
  const bool is_value = PyUnicode_Check(key) || PyBytes_Check(key) || PyLong_Check(key) ||
                        PyFloat_Check(key) || PyComplex_Check(key) || PyRange_Check(key) ||
                        PyMethod_Check(key) || PyCFunction_Check(key) || is_scalar_of_numpy(key) ||
                        name == "datetime.date" || name == "datetime.timedelta" ||
                        (name == "datetime.datetime" && is_naive());
  return is_value || is_text_or_device(key) ? Compared::kByC : Compared::kByPython;
}

}  // namespace

PyObject* own_key(PyObject* dict, PyObject* key) {
  if (is_plain_key(key) || find_entry(dict, key) != nullptr) return key;
  const Compared how = how_compared(key);
  if (how == Compared::kByIdentity) return key;
  for (const auto& [found, item] : entries_of(dict)) {
    const Compared other = how_compared(found);
    if (other == Compared::kByIdentity) continue;
    if (how == Compared::kByPython || other == Compared::kByPython) return nullptr;
    const bool is_equal = PyObject_Hash(found) == PyObject_Hash(key) &&
                          PyObject_RichCompareBool(found, key, Py_EQ) == 1;
    PyErr_Clear();
    if (is_equal) return found;
  }
  return key;
}

bool is_array_of_numpy(PyObject* object) {
  return std::string_view(Py_TYPE(object)->tp_name) == "numpy.ndarray";
}

bool is_array(PyObject* object) {
  if (PyByteArray_Check(object)) return true;
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name == "numpy.ndarray" || name == "array.array" || name == "memoryview";
}

bool has_notes(PyObject* array) {
  if (!is_array_of_numpy(array) && !is_scalar_of_numpy(array)) return false;
  return is_noted(borrowed(array).attr("dtype"));
}

bool has_fields(PyObject* array) { return !borrowed(array).attr("dtype").attr("names").is_none(); }

bool holds_objects(PyObject* array) {
  return is_array_of_numpy(array) &&
         py::cast<bool>(borrowed(array).attr("dtype").attr("hasobject"));
}

py::object bytes_of_array(PyObject* array) {
  constexpr Py_ssize_t kMost = 1 << 16;
  if (has_notes(array) || (holds_objects(array) && has_fields(array))) return {};
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return {};
  }
  py::object made;
  if (view.len <= kMost) {
    std::string words = view.format == nullptr ? "B" : view.format;
    if (is_scalar_of_numpy(array))
      words += " " + text_of(borrowed(array).attr("dtype").attr("str").ptr());
    for (int i = 0; i < view.ndim; ++i) words += " " + std::to_string(view.shape[i]);
    std::string bytes(static_cast<std::size_t>(view.len), '\0');
    if (PyBuffer_ToContiguous(bytes.data(), &view, view.len, 'C') == 0) {
      made = py::bytes(words + ":" + bytes);
    } else {
      PyErr_Clear();
    }
  }
  PyBuffer_Release(&view);
  return made;
}

Plain Plain::reference(Roots& roots, PyObject* value, int depth) {
  if (value == nullptr) return {};
  const bool is_atom = PyLong_CheckExact(value) || is_float(value) || is_text_or_device(value) ||
                       is_tensor(value) || PyMethod_Check(value);
  if (is_atom) return {roots, value, 0};
  if (is_scalar_of_numpy(value)) return bytes(roots, value);
  if (!PyTuple_CheckExact(value) || depth == 0) return identity(roots, value);
  Plain plain;
  plain.kind_ = Kind::kTuple;
  plain.value_ = Root(roots, value);
  plain.take_references(roots, value, depth - 1);
  return plain;
}

void Plain::take_references(Roots& roots, PyObject* sequence, int depth) {
  length_ = PySequence_Fast_GET_SIZE(sequence);
  for (Py_ssize_t i = 0; i < length_; ++i) {
    items_.push_back(reference(roots, PySequence_Fast_GET_ITEM(sequence, i), depth));
  }
}

Plain Plain::bytes(Roots& roots, PyObject* array) {
  Plain plain;
  plain.kind_ = Kind::kBytes;
  plain.value_ = Root(roots, bytes_of_array(array).ptr());
  plain.keys_.push_back(class_of(roots, array));
  if (!holds_objects(array)) return plain;
  // held, so that no other object gets the address of one
  std::vector<PyObject*> held;
  add_held(array, held);
  for (PyObject* object : held) plain.keys_.emplace_back(roots, object);
  return plain;
}

Plain Plain::content(Roots& roots, PyObject* container) {
  Plain plain;
  if (container == nullptr) return plain;
  if (is_array(container)) return bytes(roots, container);
  if (PyDict_Check(container)) {
    plain.kind_ = Kind::kDict;
    plain.value_ = class_of(roots, container);
    for (const auto& [key, item] : entries_of(container)) {
      plain.keys_.emplace_back(roots, key);
      plain.items_.push_back(reference(roots, item));
    }
    plain.length_ = static_cast<Py_ssize_t>(plain.items_.size());
    return plain;
  }
  if (PyList_Check(container) || PyTuple_Check(container)) {
    plain.kind_ = PyList_Check(container) ? Kind::kList : Kind::kTuple;
    plain.value_ = PyList_Check(container) ? class_of(roots, container) : Root(roots, container);
    plain.take_references(roots, container);
    return plain;
  }
  const py::object items = list_of(container);
  plain.kind_ = PyAnySet_CheckExact(container) ? Kind::kSet
                : is_deque(container)          ? Kind::kDeque
                                               : Kind::kIterated;
  plain.value_ = class_of(roots, container);
  if (plain.kind_ == Kind::kDeque) plain.real_ = most_of(container);
  plain.take_references(roots, items.ptr());
  return plain;
}

Plain Plain::whole(Roots& roots, PyObject* value, int depth) {
  Plain plain = content_of(roots, value, depth);
  const bool is_container = value != nullptr && (PyList_Check(value) || PyTuple_Check(value) ||
                                                 PyDict_Check(value) || PyAnySet_Check(value));
  if (!is_container || !is_heap(Py_TYPE(value))) return plain;
  plain.has_attributes_ = true;
  PyObject* dict = dict_of(value);
  const bool is_itself = dict == value;  // self.__dict__ = self
  if (dict != nullptr && !is_itself && PyDict_GET_SIZE(dict) != 0) {
    plain.attributes_.push_back(whole(roots, dict, depth - 1));
    plain.is_cut_ |= plain.attributes_.back().is_cut_;
  }
  return plain;
}

bool Plain::same_attributes(PyObject* now) const {
  PyObject* dict = now == nullptr ? nullptr : dict_of(now);
  if (dict == nullptr || dict == now || PyDict_GET_SIZE(dict) == 0) return attributes_.empty();
  return !attributes_.empty() && attributes_.front().same(dict);
}

Plain Plain::content_of(Roots& roots, PyObject* value, int depth) {
  if (value == nullptr) return {};
  Plain plain;
  if (is_array(value) || (is_scalar_of_numpy(value) && !is_float(value)))
    return bytes(roots, value);
  const bool is_dict = PyDict_Check(value);
  const bool has_items = PyList_Check(value) || PyTuple_Check(value) || PyAnySet_Check(value);
  PyObject* dict = is_dict                                            ? value
                   : has_items || is_tensor(value) || is_fixed(value) ? nullptr
                                                                      : dict_of(value);
  const auto take = [&](PyObject* item) {
    plain.items_.push_back(whole(roots, item, depth - 1));
    plain.is_cut_ |= plain.items_.back().is_cut_;
  };
  if (depth > 0 && dict != nullptr && PyDict_GET_SIZE(dict) <= kMostItems) {
    plain.kind_ = is_dict ? Kind::kDict : Kind::kObject;
    plain.value_ = class_of(roots, value);
    for (const auto& [key, item] : entries_of(dict)) {
      plain.keys_.emplace_back(roots, key);
      take(item);
    }
    plain.length_ = static_cast<Py_ssize_t>(plain.items_.size());
    return plain;
  }
  const bool is_list = PyList_Check(value);
  const bool is_sequence = is_list || PyTuple_Check(value);
  const bool is_queue = is_deque(value);
  if (depth > 0 && (is_queue || (is_sequence && PySequence_Fast_GET_SIZE(value) <= kMostItems))) {
    plain.kind_ = is_queue ? Kind::kDeque : is_list ? Kind::kList : Kind::kTuple;
    if (is_sequence) plain.value_ = is_list ? class_of(roots, value) : Root(roots, value);
    if (is_queue) plain.real_ = most_of(value);
    const py::object items = is_queue ? list_of(value) : borrowed(value);
    plain.length_ = PySequence_Fast_GET_SIZE(items.ptr());
    for (Py_ssize_t i = 0; i < plain.length_; ++i) take(PySequence_Fast_GET_ITEM(items.ptr(), i));
    return plain;
  }
  plain = {roots, value, 0};
  plain.is_cut_ = dict != nullptr           ? PyDict_GET_SIZE(dict) != 0
                  : is_sequence || is_queue ? size_of(value) != 0
                  : has_items               ? size_of(value) > kMostItems
                                            : false;
  return plain;
}

Plain::Plain(Roots& roots, PyObject* value, int depth) {
  if (value == nullptr) return;
  if (is_tensor(value)) {
    kind_ = Kind::kTensor;
    tensor_ = decltype(tensor_)(tensor_of(value).getIntrusivePtr());
    return;
  }
  if (PyMethod_Check(value)) {
    kind_ = Kind::kMethod;
    items_.push_back(identity(roots, PyMethod_GET_SELF(value)));
    items_.push_back(identity(roots, PyMethod_GET_FUNCTION(value)));
    return;
  }
  value_ = Root::guarding(roots, value);
  if (PyLong_CheckExact(value)) {
    kind_ = Kind::kInteger;
  } else if (is_float(value)) {
    real_ = PyFloat_AS_DOUBLE(value);
    // what dicts, sets and `in` find of a NaN is the very object
    kind_ = std::isnan(real_) ? Kind::kIdentity : Kind::kReal;
  } else if (is_text_or_device(value)) {
    kind_ = Kind::kText;
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    kind_ = PyList_Check(value) ? Kind::kList : Kind::kTuple;
    length_ = PySequence_Fast_GET_SIZE(value);
    if (depth == 0 || length_ > kMostItems) {
      kind_ = kind_ == Kind::kList ? Kind::kLength : Kind::kIdentity;
    } else {
      take_items(roots, value, depth);
      if (!is_items_alone(value)) only_ = Root::guarding(roots, value);
      if (kind_ == Kind::kList) value_ = class_of(roots, value);
    }
  } else if (PyDict_Check(value)) {
    length_ = PyDict_Size(value);
    kind_ = depth == 0 || length_ > kMostItems ? Kind::kLength : Kind::kDict;
    if (kind_ != Kind::kDict) return;
    take_dict(roots, value, depth);
    if (!is_items_alone(value)) only_ = Root::guarding(roots, value);
    if (is_default_dict(value)) factory_ = Root(roots, factory_of(value).ptr());
    value_ = class_of(roots, value);
  } else if (depth > 0 && is_holder(value)) {
    kind_ = Kind::kObject;
    take_dict(roots, dict_of(value), depth);
    value_ = class_of(roots, value);
  } else if (is_deque(value)) {
    const py::object items = list_of(value);
    length_ = PyList_GET_SIZE(items.ptr());
    kind_ = depth <= 0 ? Kind::kLength : Kind::kDeque;  // one may hold itself
    if (kind_ != Kind::kDeque) return;
    take_items(roots, items.ptr(), depth);
    real_ = most_of(value);
    value_.reset();
  } else if (PyAnySet_CheckExact(value) && PySet_GET_SIZE(value) <= kMostItems) {
    kind_ = Kind::kSet;
    // in the order in which code that goes over it meets them
    const py::object items = list_of(value);
    length_ = PyList_GET_SIZE(items.ptr());
    take_items(roots, items.ptr(), depth);
    value_ = class_of(roots, value);
  } else if (PyAnySet_Check(value) || PyByteArray_Check(value)) {
    kind_ = Kind::kLength;
    length_ = size_of(value);
  }
}

Plain Plain::hooks(Roots& roots, PyObject* dict) {
  Plain plain;
  plain.kind_ = Kind::kHooks;
  if (dict == nullptr || !PyDict_Check(dict)) return plain;
  for (const auto& [key, item] : entries_of(dict)) plain.items_.emplace_back(roots, item, 0);
  plain.length_ = static_cast<Py_ssize_t>(plain.items_.size());
  return plain;
}

Plain Plain::identity(Roots& roots, PyObject* value) {
  Plain plain;
  plain.value_ = Root::guarding(roots, value);
  return plain;
}

void Plain::take_dict(Roots& roots, PyObject* dict, int depth) {
  for (const auto& [key, item] : entries_of(dict)) {
    keys_.emplace_back(roots, key);
    items_.emplace_back(roots, item, depth - 1);
  }
  length_ = static_cast<Py_ssize_t>(items_.size());
}

void Plain::take_items(Roots& roots, PyObject* sequence, int depth) {
  items_.reserve(static_cast<std::size_t>(length_));
  for (Py_ssize_t i = 0; i < length_; ++i) {
    items_.emplace_back(roots, PySequence_Fast_GET_ITEM(sequence, i), depth - 1);
  }
}

void Plain::let_move(PyObject* value, const MovingPlaces& moving) {
  if (value == nullptr || items_.empty()) return;
  if (moving.is_empty() && FollowedNumbers::current().is_empty()) return;
  bool has_moving = false;
  if (kind_ == Kind::kDeque || (kind_ == Kind::kList && PyList_Check(value))) {
    const py::object items = PyList_Check(value) ? borrowed(value) : list_of(value);
    for (Py_ssize_t i = 0; i < length_; ++i) {
      has_moving |= let_item_move(static_cast<std::size_t>(i), value, py::int_(i).ptr(),
                                  PyList_GET_ITEM(items.ptr(), i), moving);
    }
  } else if (kind_ == Kind::kDict || kind_ == Kind::kObject) {
    PyObject* dict = PyDict_Check(value) ? value : dict_of(value);
    std::size_t i = 0;
    for (const auto& [key, item] : entries_of(dict)) {
      if (i == items_.size()) break;
      has_moving |= let_item_move(i++, dict, key, item, moving);
    }
  } else if (kind_ == Kind::kTuple && PyTuple_GET_SIZE(value) == length_) {
    for (Py_ssize_t i = 0; i < length_; ++i) {
      items_[static_cast<std::size_t>(i)].let_move(PyTuple_GET_ITEM(value, i), moving);
    }
  }
  if (has_moving) only_ = Root::guarding(moving.roots(), value);
}

bool Plain::let_item_move(std::size_t i, PyObject* owner, PyObject* key, PyObject* item,
                          const MovingPlaces& moving) {
  if (!moving.contains(owner, key) && !is_followed(item)) {
    items_[i].let_move(item, moving);
    return false;
  }
  items_[i] = Plain();
  items_[i].kind_ = Kind::kAnything;
  return true;
}

std::string Plain::token() const {
  switch (kind_) {
    case Kind::kIdentity:
      if (is_dead_reference(value_.get())) return "dead weak reference";
      return "@" + std::to_string(reinterpret_cast<std::uintptr_t>(value_.get())) +
             (is_gone() ? " gone" : "");
    case Kind::kInteger:
    case Kind::kText:
      return shown(value_.get());
    case Kind::kReal:
      return type_name(value_.get()) + std::to_string(std::bit_cast<std::uint64_t>(real_));
    case Kind::kMethod:
      return items_[0].token() + "." + items_[1].token();
    default:
      return "";
  }
}

std::optional<Py_ssize_t> Plain::appended(PyObject* now, Py_ssize_t count) const {
  if (now == nullptr || !(is_deque(now) ? kind_ == Kind::kDeque
                                        : kind_ == Kind::kList && is_exactly(now, value_.get()))) {
    return std::nullopt;
  }
  if (is_deque(now) && !same_bits(most_of(now), real_)) return std::nullopt;
  const py::object items = list_of(now);
  const Py_ssize_t size = PyList_GET_SIZE(items.ptr());
  // a full deque loses as many at its front
  const Py_ssize_t lost =
      is_deque(now) ? std::clamp<Py_ssize_t>(length_ + count - size, 0, length_) : 0;
  const Py_ssize_t kept = length_ - lost;
  if (size <= kept || (lost > 0 && static_cast<double>(size) != real_)) return std::nullopt;
  for (Py_ssize_t i = 0; i < kept; ++i) {
    const Plain& item = items_[static_cast<std::size_t>(lost + i)];
    if (!item.same(PyList_GET_ITEM(items.ptr(), i))) return std::nullopt;
  }
  return kept;
}

bool Plain::same(PyObject* now) const {
  if (!only_.is_empty() && (now == nullptr || now != only_.get())) return false;
  if (!same_content(now) || (has_attributes_ && !same_attributes(now))) return false;
  return factory_.get() == nullptr || factory_of(now).ptr() == factory_.get();
}

bool Plain::same_content(PyObject* now) const {
  PyObject* before = value_.get();
  switch (kind_) {
    case Kind::kIdentity:
      return (now == before && !is_gone()) || (is_dead_reference(now) && is_dead_reference(before));
    case Kind::kAnything:
      return now != nullptr;
    case Kind::kTensor:
      return now != nullptr && is_tensor(now) &&
             tensor_of(now).unsafeGetTensorImpl() == tensor_._unsafe_get_target();
    case Kind::kMethod:
      return now != nullptr && PyMethod_Check(now) && items_[0].same(PyMethod_GET_SELF(now)) &&
             items_[1].same(PyMethod_GET_FUNCTION(now));
    case Kind::kInteger:
      return now == before || (now != nullptr && PyLong_CheckExact(now) && equal(before, now));
    case Kind::kReal:
      return now == before || (now != nullptr && Py_TYPE(now) == Py_TYPE(before) &&
                               same_bits(real_, PyFloat_AS_DOUBLE(now)));
    case Kind::kText:
      return now == before ||
             (now != nullptr && Py_TYPE(now) == Py_TYPE(before) && equal(before, now));
    case Kind::kTuple:
      return now != nullptr && Py_TYPE(now) == Py_TYPE(before) && same_items(now);
    case Kind::kList:
      return is_exactly(now, before) && same_items(now);
    case Kind::kDeque:
      return now != nullptr && is_deque(now) && same_bits(most_of(now), real_) &&
             same_items(list_of(now).ptr());
    case Kind::kSet:
      return is_exactly(now, before) && PySet_GET_SIZE(now) == length_ &&
             (length_ == 0 || same_items(list_of(now).ptr()));
    case Kind::kDict:
      return is_exactly(now, before) && same_dict(now);
    case Kind::kObject:
      return is_exactly(now, before) && same_dict(dict_of(now));
    case Kind::kHooks:
      return now == nullptr || now == Py_None ? length_ == 0 : PyDict_Check(now) && same_dict(now);
    case Kind::kLength:
      return now == before && !is_gone() && size_of(now) == length_;
    case Kind::kIterated:
      return is_exactly(now, before) && same_items(list_of(now).ptr());
    case Kind::kBytes: {
      if (before == nullptr || !is_exactly(now, keys_.front().get())) return false;
      const py::object bytes = bytes_of_array(now);
      return bytes && equal(before, bytes.ptr());
    }
  }
  return false;
}

bool Plain::is_mutable() const {
  switch (kind_) {
    case Kind::kIdentity:
    case Kind::kAnything:
    case Kind::kTensor:
    case Kind::kMethod:
    case Kind::kInteger:
    case Kind::kReal:
    case Kind::kText:
      return false;
    case Kind::kTuple:
      return std::ranges::any_of(items_, &Plain::is_mutable);
    case Kind::kList:
    case Kind::kDeque:
    case Kind::kSet:
    case Kind::kDict:
    case Kind::kObject:
    case Kind::kHooks:
    case Kind::kLength:
    case Kind::kIterated:
    case Kind::kBytes:
      break;
  }
  return true;
}

bool Plain::may_be_exchanged() const {
  if (kind_ == Kind::kTuple || kind_ == Kind::kMethod)
    return std::ranges::any_of(items_, &Plain::may_be_exchanged);
  PyObject* const object = value_.get();
  return kind_ == Kind::kIdentity && object != nullptr && may_stand_for(object, object);
}

const DictMemo* Plain::memo_of(PyObject* now) const {
  const bool is_dict =
      now != nullptr && PyDict_Check(now) && (kind_ == Kind::kDict || kind_ == Kind::kHooks);
  return is_dict && memo_.is_of(now) ? &memo_ : nullptr;
}

bool Plain::same_items(PyObject* now) const {
  if (PySequence_Fast_GET_SIZE(now) != length_) return false;
  for (Py_ssize_t i = 0; i < length_; ++i) {
    if (!items_[static_cast<std::size_t>(i)].same(PySequence_Fast_GET_ITEM(now, i))) return false;
  }
  return true;
}

bool Plain::same_dict(PyObject* now) const {
  if (now == nullptr || PyDict_GET_SIZE(now) != length_) return false;
  if (const auto remembered = memo_.same(now)) return *remembered;
  memo_.begin();
  std::size_t i = 0;
  bool is_kept = true;
  const auto same_entry = [this, &i, &is_kept](PyObject* key, PyObject* item) {
    if (i == items_.size()) return false;
    is_kept = is_kept && (PyUnicode_CheckExact(key) || !may_stand_for(key, key));
    if (kind_ != Kind::kHooks && !same_key(keys_[i].get(), key)) return false;
    if (!items_[i].same(item)) return false;
    memo_.add(items_[i++], item);
    return true;
  };
  if (has_own_order(now)) {
    for (const auto& [key, item] : entries_of(now)) {
      if (!same_entry(key, item)) return false;
    }
    return i == items_.size();
  }
  for (const auto [key, item] : Entries(now)) {
    if (!same_entry(key, item)) return false;
  }
  if (i != items_.size()) return false;
  if (is_kept) memo_.keep(now);
  return true;
}

py::object Plain::before() const {
  if (kind_ == Kind::kList || kind_ == Kind::kDeque || kind_ == Kind::kSet) {
    py::list list;
    for (const Plain& item : items_) list.append(item.before());
    return list;
  }
  if (kind_ == Kind::kDict) {
    py::dict dict;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      dict[borrowed(keys_[i].get())] = items_[i].before();
    }
    return dict;
  }
  return or_none(value_.get());
}

std::string Plain::words() const {
  switch (kind_) {
    case Kind::kAnything:
      return "something";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kMethod:
      return "a method, " + items_[1].words();
    case Kind::kHooks:
      return std::to_string(length_) + (length_ == 1 ? " hook" : " hooks");
    case Kind::kObject:
      return "a " + type_name(as_type(value_.get()));
    case Kind::kIdentity:
      return is_gone() ? "an object that is gone" : shown(value_.get());
    default:
      return shown(before().ptr());
  }
}

int Plain::differing(PyObject* now) const {
  int count = 0;
  if (kind_ == Kind::kList) {
    for (Py_ssize_t i = 0; i < length_; ++i) {
      count += items_[static_cast<std::size_t>(i)].same(PyList_GET_ITEM(now, i)) ? 0 : 1;
    }
    return count;
  }
  const auto entries = entries_of(now);
  if (kind_ != Kind::kDict || static_cast<Py_ssize_t>(entries.size()) != length_) return 2;
  std::size_t i = 0;
  for (const auto& [key, item] : entries) {
    if (!same_key(keys_[i].get(), key)) return 2;
    count += items_[i++].same(item) ? 0 : 1;
  }
  return count;
}

Change Plain::change_of_place(PyObject* now) const {
  Change made = change(now);
  if (kind_ != Kind::kTuple || now == nullptr || !PyTuple_Check(now)) return made;
  return {"", words(), borrowed(now), py::list()};
}

std::optional<std::vector<py::object>> Plain::changed_items(PyObject* now) const {
  const auto may_differ = [](const Plain& before, PyObject* item) {
    return before.kind_ == Kind::kAnything || !before.same(item) || holds_followed(item);
  };
  std::vector<py::object> keys;
  const bool is_queue = kind_ == Kind::kDeque && now != nullptr && is_deque(now);
  if (is_queue || (kind_ == Kind::kList && is_exactly(now, value_.get()))) {
    const py::object items = list_of(now);
    if (PyList_GET_SIZE(items.ptr()) != length_) return std::nullopt;
    for (Py_ssize_t i = 0; i < length_; ++i) {
      if (may_differ(items_[static_cast<std::size_t>(i)], PyList_GET_ITEM(items.ptr(), i)))
        keys.push_back(py::int_(i));
    }
    return keys;
  }
  if (kind_ != Kind::kDict || !is_exactly(now, value_.get())) return std::nullopt;
  const auto entries = entries_of(now);
  if (static_cast<Py_ssize_t>(entries.size()) != length_) return std::nullopt;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!same_key(keys_[i].get(), entries[i].first)) return std::nullopt;
    if (may_differ(items_[i], entries[i].second)) keys.push_back(borrowed(entries[i].first));
  }
  return keys;
}

bool Plain::is_number_at(const py::object& key) const {
  if (kind_ != Kind::kDict) return items_[py::cast<std::size_t>(key)].is_number();
  const auto found = std::ranges::find_if(
      keys_, [&key](const Root& known) { return same_key(known.get(), key.ptr()); });
  return found != keys_.end() &&
         items_[static_cast<std::size_t>(found - keys_.begin())].is_number();
}

Change Plain::change(PyObject* now) const {
  const bool in_list =
      now != nullptr &&
      (kind_ == Kind::kList ? is_exactly(now, value_.get())
                            : kind_ == Kind::kTuple && Py_TYPE(now) == Py_TYPE(value_.get())) &&
      PySequence_Fast_GET_SIZE(now) == length_;
  const bool is_object = kind_ == Kind::kObject && is_exactly(now, value_.get());
  const bool in_dict = kind_ == Kind::kDict && now != nullptr && PyDict_Check(now);
  PyObject* const dict = is_object ? dict_of(now) : now;
  for (std::size_t i = 0; (in_list || is_object || in_dict) && i < items_.size(); ++i) {
    const py::object key = in_list ? py::object(py::int_(i)) : borrowed(keys_[i].get());
    PyObject* const found = in_list ? PySequence_Fast_ITEMS(now)[i] : find_entry(dict, key.ptr());
    if (items_[i].same(found)) continue;
    Change change = items_[i].change(found);
    change.path = (is_object ? "." + trace::path_component(text_of(key.ptr()))
                             : "[" + shown(key.ptr()) + "]") +
                  change.path;
    if (!is_object) change.keys.insert(0, key);
    change.is_whole &= !is_object && differing(now) == 1;
    return change;
  }
  if (kind_ == Kind::kList || kind_ == Kind::kLength) {
    // the object may be the same: what it held says more
    const auto size = [](PyObject* object) { return py::cast(size_of(object)); };
    if (now != nullptr && size_of(now) >= 0) {
      return {".size", std::to_string(length_), size(now), py::list(), false};
    }
    PyErr_Clear();
  }
  if (in_dict) {
    return {".size", std::to_string(length_), py::cast(entries_of(now).size()), py::list(), false};
  }
  return {"", words(), borrowed(now), py::list()};
}

}  // namespace steptape::python
