#pragma once

#include "python/engine/python.h"

/// What Steptape puts where the program can see it, while any thread records: hooks for all
/// modules, and functions in the places of Python's (math.sqrt). To what compares the program's
/// state, in this thread or another, nothing has changed: it leaves the hooks out and sees each
/// function as the one that it stands for. All under the GIL.
namespace steptape::python {

/// All hooks are of this class, and nothing else is. Kept for ever.
inline PyTypeObject* own_hook_class = nullptr;
inline bool is_own_hook(PyObject* object) {
  return object != nullptr && Py_TYPE(object) == own_hook_class;
}

/// `function` stands for `original` from here on. Both are kept.
void add_stand_in(PyObject* function, PyObject* original);
/// What `object`, which may be null, stands for: mostly itself. Borrowed.
PyObject* stood_for(PyObject* object);

}  // namespace steptape::python
