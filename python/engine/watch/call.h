#pragma once

#include <string>
#include <vector>

#include "python/engine/watch/watcher.h"

namespace steptape::python::watch {

/// A call of the step's, bound or not. Borrows all that it names.
struct Watcher::Call {
  PyObject* callee = nullptr;
  std::vector<PyObject*> arguments = {};  ///< those by position
  std::vector<PyObject*> named = {};
  std::vector<PyObject*> names = {};  ///< of `named`
  std::string module = {};            ///< of a function of C's

  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (PyObject* argument : arguments) visit(argument);
    for (PyObject* argument : named) visit(argument);
  }
};

}  // namespace steptape::python::watch
