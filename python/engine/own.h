#pragma once

#include "python/engine/python.h"

/// What Steptape puts where the program can see it, while any thread records: hooks for all
/// modules. What compares the program's state, in this thread or another, leaves them out. All
/// under the GIL.
namespace steptape::python {

/// All hooks are of this class, and nothing else is. Kept for ever.
inline PyTypeObject* own_hook_class = nullptr;
inline bool is_own_hook(PyObject* object) {
  return object != nullptr && Py_TYPE(object) == own_hook_class;
}

}  // namespace steptape::python
