#include "python/engine/own.h"

#include <unordered_map>

namespace steptape::python {
namespace {

PyTypeObject* hook_class = nullptr;

/// By function. Never let go of: the interpreter may end first.
std::unordered_map<PyObject*, PyObject*>& originals() {
  static auto* instance = new std::unordered_map<PyObject*, PyObject*>;
  return *instance;
}

}  // namespace

void set_own_hook_class(PyObject* type) {
  Py_INCREF(type);
  hook_class = reinterpret_cast<PyTypeObject*>(type);
}

bool is_own_hook(PyObject* object) { return object != nullptr && Py_TYPE(object) == hook_class; }

void add_stand_in(PyObject* function, PyObject* original) {
  Py_INCREF(function);
  Py_INCREF(original);
  originals().emplace(function, original);
}

PyObject* stood_for(PyObject* object) {
  if (object == nullptr || !PyFunction_Check(object)) return object;
  const auto found = originals().find(object);
  return found == originals().end() ? object : found->second;
}

}  // namespace steptape::python
