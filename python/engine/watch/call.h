#pragma once

#include <string>
#include <vector>

#include "python/engine/watch/watcher.h"

namespace steptape::python::watch {

/// A call of the step's, bound or not. Borrows all that it names.
struct Watcher::Call {
  PyObject* callee = nullptr;
  std::vector<PyObject*> arguments;  ///< those by position
  std::vector<PyObject*> named;
  std::vector<PyObject*> names = {};  ///< of `named`
  std::string module = {};            ///< of a function of C's

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (PyObject* argument : arguments) visit(argument);
    for (PyObject* argument : named) visit(argument);
  }
};

/// Of a Python module that is loaded: an import would ask the builtins of the frame that runs,
/// which may have none.
inline PyObject* attribute_type(const char* module, const char* name) {
  const auto found = stolen(PyImport_GetModule(py::str(module).ptr()));
  return found ? py::object(found.attr(name)).release().ptr() : nullptr;
}

}  // namespace steptape::python::watch
