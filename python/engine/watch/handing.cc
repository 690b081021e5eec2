#include <algorithm>
#include <array>
#include <string_view>

#include "python/engine/watch/opcodes.h"

/// What code of Python's returns goes to whoever has called it: to an instruction that hands it on,
/// or to code of C's that looks at it, as `max(items, key=function)` does.
#if STEPTAPE_KNOWS_BYTECODE
#include <opcode.h>

namespace steptape::python::watch {
namespace {

bool is_of_python(PyTypeObject* type, const char* method) {
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return false;
  PyObject* name = PyUnicode_InternFromString(method);
  PyObject* found = _PyType_Lookup(type, name);
  Py_DECREF(name);
  // a __new__ is a static method
  return found != nullptr && (PyFunction_Check(found) || Py_TYPE(found) == &PyStaticMethod_Type);
}

/// Containers and iterators of C's that look at nothing they are given.
bool hands_on(PyTypeObject* type) {
  return type == &PyList_Type || type == &PyTuple_Type || type == &PyDict_Type ||
         type == &PyMap_Type || type == &PyZip_Type || type == &PyEnum_Type ||
         type == &PyReversed_Type;
}

}  // namespace

bool gives_to_c(const Instruction& in) {
  switch (in.operation) {
    case Operation::kTest:
    case Operation::kLength:
    case Operation::kContains:
    case Operation::kFormat:
      return true;
    case Operation::kNext:
      return !PyGen_Check(in.first) && !hands_on(Py_TYPE(in.first)) &&
             !is_of_python(Py_TYPE(in.first), "__next__");
    case Operation::kCall:
      return in.callee != nullptr && calls_c(in.callee);
    default:
      return false;
  }
}

bool calls_c(PyObject* callee) {
  if (PyMethod_Check(callee)) return calls_c(PyMethod_GET_FUNCTION(callee));
  if (PyFunction_Check(callee)) return false;
  if (PyType_Check(callee)) {
    auto* type = reinterpret_cast<PyTypeObject*>(callee);
    return !hands_on(type) && !is_of_python(type, "__init__") && !is_of_python(type, "__new__");
  }
  if (std::string_view(Py_TYPE(callee)->tp_name) == "functools.partial") {
    PyObject* function = PyObject_GetAttrString(callee, "func");
    if (function == nullptr) PyErr_Clear();
    const bool is_one = function == nullptr || calls_c(function);
    Py_XDECREF(function);
    return is_one;
  }
  return !is_of_python(Py_TYPE(callee), "__call__");
}

bool goes_to_c(const Place& at, const Pending* caller) {
#ifdef YIELD_FROM
  if (at.opcode == YIELD_FROM) return true;
#endif
  if (at.opcode == YIELD_VALUE || (caller != nullptr && caller->gives_to_c)) return true;
  // methods that code of C's calls and whose result it takes apart
  const char* name = PyUnicode_AsUTF8(at.code->co_name);
  if (name == nullptr || name[0] != '_' || name[1] != '_') return false;
  constexpr std::array<std::string_view, 7> kAsked = {
      "__index__", "__hash__", "__len__", "__bool__", "__length_hint__", "__int__", "__float__"};
  return std::ranges::find(kAsked, std::string_view(name)) != kAsked.end();
}

}  // namespace steptape::python::watch

#endif
