#include "python/engine/type_watch.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace steptape::python {
namespace {

/// Bookkeeping that changes without a meaning for what the class does.
bool is_bookkeeping(std::string_view name) {
  if (!name.starts_with('_')) return false;
  return name == "__abstractmethods__" || name == "_abc_impl" || name == "__static_attributes__" ||
         name == "__weakref__" || name == "__dict__" || name == "__doc__" ||
         name == "__annotations__" || name == "__annotations_cache__" || name == "__firstlineno__";
}

/// Whether functions of C's and instructions may look it up by themselves: what has underscores, or
/// is a function of Python's, such as `utcoffset` of a time zone and `get` of a counter.
bool is_asked_for(std::string_view name, PyObject* value) {
  if (name.starts_with("__")) {
    return PyCallable_Check(value) != 0 || value == Py_None || Py_TYPE(value) == &PyProperty_Type ||
           PyObject_TypeCheck(value, &PyClassMethod_Type) != 0;
  }
  if (Py_TYPE(value) == &PyProperty_Type || PyFunction_Check(value)) return true;
  if (Py_TYPE(value) != &PyClassMethod_Type && Py_TYPE(value) != &PyStaticMethod_Type) return false;
  const py::object function = member(value, "__func__");
  return function && PyFunction_Check(function.ptr());
}

}  // namespace

unsigned int version_of(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__doc__");
  _PyType_Lookup(type, name);
  return type->tp_version_tag;
}

py::object methods_of(PyTypeObject* type) {
  py::list found;
  for (PyTypeObject* base : bases_of(type)) {
    if (!is_heap(base)) continue;
    const py::object dict = dict_of_type(base);
    for (const auto [key, value] : Entries(dict.ptr())) {
      const std::string_view name = view_of(key);
      if (is_bookkeeping(name) || !is_asked_for(name, value)) continue;
      found.append(borrowed(key));
      found.append(borrowed(value));
    }
  }
  return py::tuple(found);
}

TypeWatch::TypeWatch(Roots& roots, PyTypeObject* type)
    : type_(roots, reinterpret_cast<PyObject*>(type)),
      version_(version_of(type)),
      order_(roots, type->tp_mro) {
  for (PyTypeObject* base : bases_of(type)) {
    if (!is_heap(base)) continue;
    Base& added = bases_.emplace_back();
    added.type = Root(roots, reinterpret_cast<PyObject*>(base));
    const py::object dict = dict_of_type(base);
    added.size = PyDict_Size(dict.ptr());
    for (const auto [key, value] : Entries(dict.ptr())) {
      if (is_bookkeeping(view_of(key))) continue;
      added.attributes.push_back({Root(roots, key), Plain(roots, value)});
    }
  }
  find_mutable();
}

bool TypeWatch::same() const {
  if (version_ != 0 && type()->tp_version_tag == version_) {
    // the attributes are the same objects still
    return std::ranges::all_of(
        mutable_, [](const auto& attribute) { return attribute.first->same(attribute.second); });
  }
  if (!changed_name().empty()) return false;
  version_ = version_of(type());
  find_mutable();
  return true;
}

void TypeWatch::find_mutable() const {
  mutable_.clear();
  for (const Base& base : bases_) {
    const py::object dict = dict_of_type(as_type(base.type.get()));
    for (const Attribute& attribute : base.attributes) {
      if (!attribute.value.is_mutable()) continue;
      mutable_.emplace_back(&attribute.value,
                            PyDict_GetItemWithError(dict.ptr(), attribute.key.get()));
    }
  }
}

std::string TypeWatch::changed_name() const {
  if (!order_.same(type()->tp_mro)) return "__bases__";
  for (const Base& base : bases_) {
    const py::object dict = dict_of_type(as_type(base.type.get()));
    for (const Attribute& attribute : base.attributes) {
      PyObject* found = PyDict_GetItemWithError(dict.ptr(), attribute.key.get());
      if (!attribute.value.same(found)) return text_of(attribute.key.get());
    }
    if (PyDict_Size(dict.ptr()) == base.size) continue;
    const std::string added = added_name(base, dict.ptr());
    if (!added.empty()) return added;
  }
  return "";
}

std::string TypeWatch::added_name(const Base& base, PyObject* dict) {
  for (const auto [key, value] : Entries(dict)) {
    const std::string name = text_of(key);
    const auto is_known = [&name](const Attribute& attribute) {
      return text_of(attribute.key.get()) == name;
    };
    if (!is_bookkeeping(name) && std::ranges::none_of(base.attributes, is_known)) return name;
  }
  return "";
}

bool TypeWatches::same() const {
  return std::ranges::all_of(watches_, [](const auto& entry) { return entry.second->same(); });
}

const TypeWatch* TypeWatches::of(PyTypeObject* type) {
  auto& watch = watches_[type];
  if (watch == nullptr) {
    auto& kept = kept_[type];
    if (kept == nullptr || !kept->same()) kept = std::make_shared<const TypeWatch>(roots_, type);
    watch = kept;
  }
  return watch.get();
}

}  // namespace steptape::python
