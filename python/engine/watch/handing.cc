#include <algorithm>
#include <array>
#include <string_view>

#include "python/engine/watch/opcodes.h"

/// What code of Python's returns goes to whoever has called it: to an instruction that hands it on,
/// or to code of C's that looks at it, as `max(items, key=function)` does.
#if STEPTAPE_KNOWS_BYTECODE
#include <frameobject.h>
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

bool is_next(PyObject* callee) {
  return PyCFunction_Check(callee) &&
         std::string_view(reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name) == "next" &&
         PyCFunction_GET_SELF(callee) != nullptr && PyModule_Check(PyCFunction_GET_SELF(callee));
}

/// For tp_traverse of an iterator of C's: zip keeps its iterators in a tuple.
int add_generator(PyObject* held, void* to) {
  if (held == nullptr) return 0;
  if (PyTuple_CheckExact(held)) return Py_TYPE(held)->tp_traverse(held, add_generator, to);
  auto& known = *static_cast<std::array<const void*, 2>*>(to);
  const auto free = std::ranges::find(known, nullptr);
  if (PyGen_CheckExact(held) && free != known.end()) *free = held;
  return 0;
}

/// The generator whose code runs, as its address; null where that is a function's.
const void* generator_that_runs() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return nullptr;
#if PY_VERSION_HEX >= 0x030B0000
  PyObject* generator = PyFrame_GetGenerator(frame);
  Py_XDECREF(generator);  // the interpreter holds it
  return generator;
#else
  return frame->f_gen;
#endif
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

std::array<const void*, 2> generators_of(const Instruction& in) {
  PyObject* from = nullptr;
  if (in.operation == Operation::kNext || (in.operation == Operation::kSpread && !in.hashes)) {
    from = in.first;
  } else if (in.operation == Operation::kCall && in.callee != nullptr && in.arguments != nullptr &&
             in.count > 0) {
    auto* type = reinterpret_cast<PyTypeObject*>(in.callee);
    if (type == &PyTuple_Type || type == &PyList_Type || is_next(in.callee)) from = in.arguments[0];
  }
  if (from == nullptr) return {};
  if (PyGen_CheckExact(from)) return {from};
  if (Py_TYPE(from) != &PyZip_Type && Py_TYPE(from) != &PyEnum_Type) return {};
  std::array<const void*, 2> found{};
  Py_TYPE(from)->tp_traverse(from, add_generator, &found);
  return found;
}

bool goes_to_c(const Place& at, const Pending* caller) {
#ifdef YIELD_FROM
  if (at.opcode == YIELD_FROM) return true;
#endif
  if (at.opcode == YIELD_VALUE) {
    const void* running = generator_that_runs();
    return running == nullptr || caller == nullptr ||
           std::ranges::find(caller->generators, running) == caller->generators.end();
  }
  if (caller != nullptr && caller->gives_to_c) return true;
  // methods that code of C's calls and whose result it takes apart
  const char* name = PyUnicode_AsUTF8(at.code->co_name);
  if (name == nullptr || name[0] != '_' || name[1] != '_') return false;
  constexpr std::array<std::string_view, 7> kAsked = {
      "__index__", "__hash__", "__len__", "__bool__", "__length_hint__", "__int__", "__float__"};
  return std::ranges::find(kAsked, std::string_view(name)) != kAsked.end();
}

}  // namespace steptape::python::watch

#endif
