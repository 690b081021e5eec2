#include "python/engine/own.h"

#include <unordered_map>

namespace steptape::python {
namespace {

/// By function. Never let go of: the interpreter may end first.
std::unordered_map<PyObject*, PyObject*>& originals() {
  static auto* instance = new std::unordered_map<PyObject*, PyObject*>;
  return *instance;
}

}  // namespace

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
