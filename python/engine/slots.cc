#include "python/engine/slots.h"

#include <algorithm>

#include "trace/path.h"

namespace steptape::python {
namespace {

py::object borrowed(PyObject* object) {
  return object == nullptr ? py::object() : py::reinterpret_borrow<py::object>(object);
}

py::object part_of_function(PyObject* function, const std::string& name) {
  if (name == "__code__") return borrowed(PyFunction_GET_CODE(function));
  return borrowed(name == "__defaults__" ? PyFunction_GET_DEFAULTS(function)
                                         : PyFunction_GET_KW_DEFAULTS(function));
}

py::object item_of(PyObject* list, PyObject* key) {
  if (!PyList_Check(list) || !PyLong_Check(key)) return {};
  Py_ssize_t position = PyLong_AsSsize_t(key);
  if (position < 0) position += PyList_GET_SIZE(list);
  const bool fits = position >= 0 && position < PyList_GET_SIZE(list);
  return fits ? borrowed(PyList_GET_ITEM(list, position)) : py::object();
}

py::object taken(PyObject* made) {
  if (made == nullptr) PyErr_Clear();
  return py::reinterpret_steal<py::object>(made);
}

/// Its misses and its size: while these stay it gives for an argument what it gave before.
py::object cached_by(PyObject* function) {
  const py::object info = taken(PyObject_CallMethod(function, "cache_info", nullptr));
  if (!info || !PyTuple_Check(info.ptr()) || PyTuple_GET_SIZE(info.ptr()) != 4) return {};
  return py::make_tuple(info[py::int_(1)], info[py::int_(3)]);
}

py::object has(PyObject* holder, PyObject* key) {
  const int found =
      PyAnySet_Check(holder) ? PySet_Contains(holder, key) : PyDict_Contains(holder, key);
  if (found < 0) PyErr_Clear();
  return py::bool_(found == 1);
}

}  // namespace

py::object Slot::value() const {
  PyObject* holder = owner.get();
  if (holder == nullptr) return {};
  switch (kind) {
    case Kind::kEntry:
    case Kind::kState:
      return borrowed(find_entry(holder, key.get()));
    case Kind::kCell:
      return borrowed(PyCell_GET(holder));
    case Kind::kItem:
      return item_of(holder, key.get());
    case Kind::kSize:
      return py::int_(std::max<Py_ssize_t>(0, PyObject_Size(holder)));
    case Kind::kHas:
      return has(holder, key.get());
    case Kind::kKeys:
      return taken(PyDict_Keys(holder));
    case Kind::kContent:
    case Kind::kWhole:
      return borrowed(holder);
    case Kind::kClass:
      return borrowed(reinterpret_cast<PyObject*>(Py_TYPE(holder)));
    case Kind::kAttribute:
      return borrowed(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(holder), key.get()));
    case Kind::kMember:
      return taken(PyObject_GenericGetAttr(holder, key.get()));
    case Kind::kFunction:
      return part_of_function(holder, text_of(key.get()));
    case Kind::kNamespace:
      return borrowed(dict_of(holder));
    case Kind::kVariable: {
      PyObject* held = nullptr;
      if (PyContextVar_Get(holder, nullptr, &held) != 0) PyErr_Clear();
      return py::reinterpret_steal<py::object>(held);
    }
    case Kind::kCache:
      return cached_by(holder);
    case Kind::kReferent:
      return borrowed(PyWeakref_GetObject(holder));
  }
  return {};
}

Plain Slot::plain(Roots& roots, const py::object& value) const {
  if (kind == Kind::kContent || kind == Kind::kKeys) return Plain::content(roots, value.ptr());
  if (kind == Kind::kWhole) return Plain::whole(roots, value.ptr());
  if (kind == Kind::kState) return {roots, value.ptr()};
  return Plain::reference(roots, value.ptr());
}

std::size_t SlotWatch::add(Slot slot, const py::object& value) {
  values_.push_back(slot.plain(roots_, value));
  if (value && slot.is_assignable() && is_compared_by_content(value.ptr())) {
    containers_.emplace_back(slots_.size(), Plain::whole(roots_, value.ptr()));
  }
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

Verdict SlotWatch::mismatch(std::size_t position) const {
  const Slot& slot = slots_[position];
  const py::object now = slot.value();
  const Change change = values_[position].change(now.ptr());
  return {"." + slot.path + change.path, change.was, shown(change.after.ptr())};
}

bool SlotWatch::was_replaced(std::size_t position, PyObject* now) const {
  if (holds_containers_ || now == nullptr) return false;
  const auto found = std::ranges::lower_bound(containers_, position, {},
                                              [](const auto& entry) { return entry.first; });
  return found != containers_.end() && found->first == position && found->second.same(now);
}

Verdict SlotWatch::check() const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool is_cache = slots_[i].kind == Slot::Kind::kCache;
    if (!slots_[i].is_guarded || (same(i) && !(is_cache && is_over_))) continue;
    if (was_replaced(i, slots_[i].value().ptr())) continue;
    is_over_ |= is_cache;
    return mismatch(i);
  }
  return {};
}

std::vector<SlotWatch::SlotChange> SlotWatch::changes() const {
  std::vector<SlotChange> changes;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const py::object now = slot.value();
    if (!values_[i].same(now.ptr())) {
      changes.push_back({&slot, values_[i].change(now.ptr())});
    } else if (slot.is_written && now) {
      changes.push_back({&slot, {"", shown(now.ptr()), now, py::list()}});
    }
  }
  return changes;
}

}  // namespace steptape::python
