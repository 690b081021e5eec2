#include "python/engine/slots.h"

#include <algorithm>

#include "python/engine/structure.h"

namespace steptape::python {
namespace {

py::object part_of_function(PyObject* function, const std::string& name) {
  if (name == "__code__") return borrowed(PyFunction_GET_CODE(function));
  return borrowed(name == "__defaults__" ? PyFunction_GET_DEFAULTS(function)
                                         : PyFunction_GET_KW_DEFAULTS(function));
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
    case Kind::kCell:
    case Kind::kItem:
    case Kind::kAttribute:
    case Kind::kMember:
      return held_at(holder, key.get());
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
  const bool may_be_replaced = slot.is_assignable() && slot.kind != Slot::Kind::kAttribute &&
                               slot.kind != Slot::Kind::kMember;
  if (value && may_be_replaced && is_compared_by_content(value.ptr())) {
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

bool SlotWatch::moves(std::size_t position) const {
  const Slot& slot = slots_[position];
  if (!slot.is_guarded || !slot.is_assignable() || !values_[position].is_number()) return false;
  const py::object now = slot.value();
  return (is_plain_number(now.ptr()) || (now && is_followed(now.ptr()))) &&
         !values_[position].same(now.ptr());
}

void SlotWatch::note_moving() const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (moves(i)) moving_.note(slots_[i].path, slots_[i].owner.get(), slots_[i].key.get());
  }
}

Verdict SlotWatch::check() const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const bool is_cache = slots_[i].kind == Slot::Kind::kCache;
    if (!slots_[i].is_guarded || (same(i) && !(is_cache && is_over_))) continue;
    if (was_replaced(i, slots_[i].value().ptr())) continue;
    is_over_ |= is_cache;
    if (moves(i)) note_moving();
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
      changes.push_back({&slot, values_[i].change(now.ptr()), moves(i)});
    } else if (slot.is_written && now) {
      changes.push_back({&slot, {"", shown(now.ptr()), now, py::list()}, false});
    }
  }
  return changes;
}

}  // namespace steptape::python
