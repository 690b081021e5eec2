#include "python/engine/slots.h"

namespace steptape::python {

PyObject* Slot::value() const {
  PyObject* holder = owner.get();
  if (holder == nullptr) return nullptr;
  if (of_object) {
    return text_of(key.get()) == "__class__" ? reinterpret_cast<PyObject*>(Py_TYPE(holder))
                                             : dict_of(holder);
  }
  if (PyCell_Check(holder)) return PyCell_GET(holder);
  if (PyType_Check(holder)) return holder;
  if (PyFunction_Check(holder)) {
    const std::string name = text_of(key.get());
    if (name == "__code__") return PyFunction_GET_CODE(holder);
    return name == "__defaults__" ? PyFunction_GET_DEFAULTS(holder)
                                  : PyFunction_GET_KW_DEFAULTS(holder);
  }
  return PyDict_Check(holder) ? PyDict_GetItemWithError(holder, key.get()) : nullptr;
}

SlotWatch::SlotWatch(Roots& roots, std::shared_ptr<const std::vector<Slot>> slots)
    : slots_(std::move(slots)), types_(roots) {
  values_.reserve(slots_->size());
  for (const Slot& slot : *slots_) {
    values_.push_back(slot.of_object ? Plain::identity(roots, slot.value())
                                     : Plain(roots, slot.value()));
    PyObject* owner = slot.owner.get();
    if (owner == nullptr || slot.of_object || !PyType_Check(owner)) continue;
    classes_.emplace_back(&slot, types_.of(reinterpret_cast<PyTypeObject*>(owner)));
  }
}

Verdict SlotWatch::check() const {
  for (std::size_t i = 0; i < slots_->size(); ++i) {
    const Slot& slot = (*slots_)[i];
    if (!slot.is_guarded) continue;
    PyObject* now = slot.value();
    if (values_[i].same(now)) continue;
    const Change change = values_[i].change(now);
    return {"." + slot.path + change.path, change.was, shown(change.after.ptr())};
  }
  for (const auto& [slot, type] : classes_) {
    if (!slot->is_guarded || type->same()) continue;
    return {"." + slot->path + "." + type->changed_name(), "what it was when it was recorded",
            "another"};
  }
  return {};
}

std::vector<SlotWatch::SlotChange> SlotWatch::changes() const {
  std::vector<SlotChange> changes;
  for (std::size_t i = 0; i < slots_->size(); ++i) {
    const Slot& slot = (*slots_)[i];
    PyObject* now = slot.value();
    if (!values_[i].same(now)) changes.push_back({&slot, values_[i].change(now)});
  }
  for (const auto& [slot, type] : classes_) {
    const std::string name = type->changed_name();
    if (!name.empty()) changes.push_back({slot, {"." + name, "None", py::none(), py::list()}});
  }
  return changes;
}

}  // namespace steptape::python
