#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

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

/// Whether code of C's makes something of what the class is called with, as float's does, before an
/// `__init__` of Python's runs.
bool makes_something(PyTypeObject* type) {
  const std::array keeps = {&PyBaseObject_Type, &PyList_Type, &PyDict_Type, &PySet_Type,
                            reinterpret_cast<PyTypeObject*>(PyExc_BaseException)};
  return std::ranges::none_of(keeps,
                              [type](PyTypeObject* base) { return type->tp_new == base->tp_new; });
}

bool is_builtin(PyObject* callee, std::string_view name) {
  if (!PyCFunction_Check(callee) || PyCFunction_GET_SELF(callee) == nullptr) return false;
  PyObject* const self = PyCFunction_GET_SELF(callee);
  return reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name == name &&
         PyModule_Check(self) && std::string_view(PyModule_GetName(self)) == "builtins";
}

/// What a list is extended by; null for another call.
PyObject* extended_by(const Instruction& in) {
  const bool is_bound = PyCFunction_Check(in.callee);
  if (!is_bound && Py_TYPE(in.callee) != &PyMethodDescr_Type) return nullptr;
  const char* name = is_bound
                         ? reinterpret_cast<PyCFunctionObject*>(in.callee)->m_ml->ml_name
                         : reinterpret_cast<PyMethodDescrObject*>(in.callee)->d_method->ml_name;
  PyObject* const list = is_bound ? PyCFunction_GET_SELF(in.callee) : in.arguments[0];
  const Py_ssize_t position = is_bound ? 0 : 1;
  const bool is_it = std::string_view(name) == "extend" && list != nullptr &&
                     PyList_CheckExact(list) && in.count == position + 1;
  return is_it ? in.arguments[position] : nullptr;
}

/// For tp_traverse of an iterator of C's: zip keeps its iterators in a tuple.
int add_held_by_iterator(PyObject* held, void* to) {
  if (held == nullptr) return 0;
  if (PyTuple_CheckExact(held)) {  // whose own visit begins at its end
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held); ++i)
      add_held_by_iterator(PyTuple_GET_ITEM(held, i), to);
    return 0;
  }
  static_cast<std::vector<PyObject*>*>(to)->push_back(held);
  return 0;
}

std::vector<PyObject*> held_by_iterator(PyObject* iterator) {
  std::vector<PyObject*> held;
  if (Py_TYPE(iterator)->tp_traverse != nullptr)
    Py_TYPE(iterator)->tp_traverse(iterator, add_held_by_iterator, &held);
  return held;
}

/// Those of C's containers, which run no code of Python's; not that of a sequence of Python's.
bool is_iterator_of_container(PyTypeObject* type) {
  constexpr std::string_view kOfCollections = "_collections.";
  const std::string_view name = type->tp_name;
  const bool is_builtin =
      (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0 && name.find('.') == name.npos;
  return (is_builtin || name.starts_with(kOfCollections)) && name.ends_with("iterator") &&
         name != "callable_iterator" && type != &PySeqIter_Type;
}

/// Whether code of C's looks at what functions of Python's give it while this is gone over.
bool looks_at_items(PyObject* from, int depth = 16) {
  PyTypeObject* type = Py_TYPE(from);
  if (PyGen_CheckExact(from) || is_of_python(type, "__next__")) return false;
  if (type->tp_iternext == nullptr) return is_of_python(type, "__iter__");  // it may be anything
  if (is_iterator_of_container(type) || type == &PySeqIter_Type) return false;
  if (!hands_on(type) || depth == 0) return true;
  return std::ranges::any_of(held_by_iterator(from), [&](PyObject* held) {
    if (PyCallable_Check(held) != 0) return calls_c(held);
    return looks_at_items(held, depth - 1);
  });
}

/// Whether no code of Python's runs where this is hashed and compared with its like: as
/// is_plain_key, in a part that is built without torch.
bool is_plain(PyObject* key) {
  if (PyUnicode_CheckExact(key) || PyBytes_CheckExact(key) || PyLong_CheckExact(key) ||
      PyFloat_CheckExact(key) || PyBool_Check(key))
    return true;
  if (PyTuple_CheckExact(key)) {
    PyObject** items = PySequence_Fast_ITEMS(key);
    return std::all_of(items, items + PyTuple_GET_SIZE(key), is_plain);
  }
  // by its identity
  return Py_TYPE(key)->tp_hash == PyBaseObject_Type.tp_hash &&
         Py_TYPE(key)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

/// Whether no code of Python's runs where these become keys, of a dict or of a call.
bool are_plain(PyObject* keys) {
  if (PyDict_CheckExact(keys)) {
    Py_ssize_t position = 0;
    PyObject* key = nullptr;
    while (PyDict_Next(keys, &position, &key, nullptr) != 0) {
      if (!is_plain(key)) return false;
    }
    return true;
  }
  if (!PyList_CheckExact(keys) && !PyTuple_CheckExact(keys)) return false;
  PyObject** items = PySequence_Fast_ITEMS(keys);
  return std::all_of(items, items + PySequence_Fast_GET_SIZE(keys), is_plain);
}

/// Whether functions of Python's give what a dict is made of its keys, or compare them.
bool are_keys_computed(PyObject* pairs) {
  if (Py_TYPE(pairs) != &PyZip_Type) return true;
  const std::vector<PyObject*> held = held_by_iterator(pairs);
  if (held.empty()) return false;
  PyTypeObject* type = Py_TYPE(held.front());
  if (!is_iterator_of_container(type)) return true;
  const bool is_of_dict = type == &PyDictIterKey_Type || type == &PyDictRevIterKey_Type;
  return !std::ranges::all_of(held_by_iterator(held.front()), [&](PyObject* keys) {
    return is_plain(keys) || ((is_of_dict || !PyDict_CheckExact(keys)) && are_plain(keys));
  });
}

/// Appends those methods of these names that are Python's own.
template <std::size_t N>
void add_methods(PyObject* self, PyObject* other, const std::array<const char*, N>& names,
                 std::vector<OwnMethod>& methods) {
  if (self == nullptr || (Py_TYPE(self)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) return;
  for (const char* name : names) {
    PyObject* key = PyUnicode_InternFromString(name);
    PyObject* found = _PyType_Lookup(Py_TYPE(self), key);
    Py_DECREF(key);
    if (found != nullptr && PyFunction_Check(found))
      methods.push_back({reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(found)), self, other});
  }
}

constexpr std::array kEqual = {"__eq__"};
constexpr std::array kUnequal = {"__ne__"};  // object's own takes apart what `__eq__` gives
constexpr std::array kComparing = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"};
constexpr std::array kGetting = {"__getitem__", "__missing__"};
constexpr std::array kArithmetic = {
    "__add__",      "__radd__",      "__iadd__",      "__sub__",     "__rsub__",     "__isub__",
    "__mul__",      "__rmul__",      "__imul__",      "__truediv__", "__rtruediv__", "__itruediv__",
    "__floordiv__", "__rfloordiv__", "__ifloordiv__", "__mod__",     "__rmod__",     "__imod__",
    "__pow__",      "__rpow__",      "__ipow__",      "__matmul__",  "__rmatmul__",  "__imatmul__",
    "__and__",      "__rand__",      "__iand__",      "__or__",      "__ror__",      "__ior__",
    "__xor__",      "__rxor__",      "__ixor__",      "__lshift__",  "__rlshift__",  "__ilshift__",
    "__rshift__",   "__rrshift__",   "__irshift__"};

/// The same of a call: of code of C's, or of a class whose instance is made of what it goes over.
bool call_gives_to_c(const Instruction& in) {
  if (in.callee == nullptr) return false;
  // the interpreter looks for parameters of these names
  if (in.spread_named != nullptr && !are_plain(in.spread_named)) return true;
  if (is_iter(in.callee, in.count) && in.spread == nullptr) return false;
  if (is_builtin(in.callee, "next") && in.arguments != nullptr && in.count > 0)
    return looks_at_items(in.arguments[0]);
  if (calls_c(in.callee) || (in.spread != nullptr && looks_at_items(in.spread))) return true;
  auto* type = reinterpret_cast<PyTypeObject*>(in.callee);
  const bool is_dict = type == &PyDict_Type;
  if (!is_dict && type != &PyList_Type && type != &PyTuple_Type) return false;
  if (in.arguments == nullptr) return in.spread != nullptr;
  return in.count > 0 &&
         (looks_at_items(in.arguments[0]) || (is_dict && are_keys_computed(in.arguments[0])));
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
    case Operation::kHash:
    case Operation::kCompare:
    case Operation::kMatchKeys:
    case Operation::kStoreItem:
    case Operation::kDeleteItem:
      return true;
    case Operation::kLoadItem:
      return !PyType_Check(in.first);
    case Operation::kMatchClass:
      return in.second != nullptr && is_of_python(Py_TYPE(in.second), "__instancecheck__");
    case Operation::kNext:
      return looks_at_items(in.first);
    case Operation::kSpread:
      return in.hashes || in.is_mapping || looks_at_items(in.first);
    case Operation::kBinary: {
      // a list takes in what it goes over
      const bool is_taken_in = PyList_Check(in.first) && Py_TYPE(in.second)->tp_iternext != nullptr;
      return !is_taken_in || looks_at_items(in.second);
    }
    case Operation::kCall:
      return call_gives_to_c(in);
    default:
      return false;
  }
}

std::vector<OwnMethod> methods_that_hand_on(const Instruction& in) {
  std::vector<OwnMethod> methods;
  if (in.operation == Operation::kLoadItem ||
      (in.operation == Operation::kSpread && in.is_mapping)) {
    PyObject* const key =
        in.second == nullptr || PySlice_Check(in.second)  // it makes another slice
            ? nullptr
            : in.second;
    add_methods(in.first, key, kGetting, methods);
    // a dict compares its keys, and may be one of them
    std::vector<OwnMethod> compared;
    add_methods(in.first, key, kEqual, compared);
    std::erase_if(methods, [&](const OwnMethod& method) {
      return std::ranges::find(compared, method.code, &OwnMethod::code) != compared.end();
    });
  }
  for (const auto& [self, other] : {std::pair(in.first, in.second), {in.second, in.first}}) {
    if (in.operation == Operation::kBinary) add_methods(self, other, kArithmetic, methods);
    if (in.operation != Operation::kCompare) continue;
    in.made == Operator::kNotEqual ? add_methods(self, other, kUnequal, methods)
                                   : add_methods(self, other, kComparing, methods);
  }
  return methods;
}

void note_method(Pending& caller, const void* frame, PyCodeObject* code, PyObject* const* given) {
  if (caller.hand_on.empty()) return;
  if (caller.handing_on == frame) caller.handing_on = nullptr;  // that of one which has ended
  const Py_ssize_t named = code->co_argcount;
  PyObject* const rest =
      (code->co_flags & CO_VARARGS) != 0 ? given[named + code->co_kwonlyargcount] : nullptr;
  const auto is_given = [&](Py_ssize_t position, PyObject* operand) {
    PyObject* value = nullptr;
    if (position < named) {
      value = given[position];
    } else if (rest != nullptr && PyTuple_Check(rest) &&
               position - named < PyTuple_GET_SIZE(rest)) {
      value = PyTuple_GET_ITEM(rest, position - named);
    }
    if (value != nullptr && PyCell_Check(value) != 0) value = PyCell_GET(value);
    return operand == nullptr || value == operand;
  };
  if (std::ranges::any_of(caller.hand_on, [&](const OwnMethod& method) {
        return method.code == code && is_given(0, method.self) && is_given(1, method.other);
      }))
    caller.handing_on = frame;
}

bool is_iter(PyObject* callee, std::size_t count) {
  return count == 1 && is_builtin(callee, "iter");
}

bool goes_over_arguments(PyObject* callee) {
  return PyType_Check(callee) && hands_on(reinterpret_cast<PyTypeObject*>(callee));
}

bool calls_c(PyObject* callee) {
  if (PyMethod_Check(callee)) return calls_c(PyMethod_GET_FUNCTION(callee));
  if (PyFunction_Check(callee)) return false;
  if (PyType_Check(callee)) {
    auto* type = reinterpret_cast<PyTypeObject*>(callee);
    if (hands_on(type) || is_of_python(type, "__new__")) return false;
    return !is_of_python(type, "__init__") || makes_something(type);
  }
  if (std::string_view(Py_TYPE(callee)->tp_name) == "functools.partial") {
    PyObject* function = PyObject_GetAttrString(callee, "func");
    PyObject* named = PyObject_GetAttrString(callee, "keywords");
    PyErr_Clear();
    const bool is_one =
        function == nullptr || calls_c(function) || named == nullptr || !are_plain(named);
    Py_XDECREF(function);
    Py_XDECREF(named);
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
    const bool takes_all =
        type == &PyTuple_Type || type == &PyList_Type || is_builtin(in.callee, "next");
    from = takes_all ? in.arguments[0] : extended_by(in);
  }
  if (from == nullptr) return {};
  if (PyGen_CheckExact(from)) return {from};
  if (Py_TYPE(from) != &PyZip_Type && Py_TYPE(from) != &PyEnum_Type) return {};
  std::array<const void*, 2> found{};
  std::size_t count = 0;
  for (PyObject* held : held_by_iterator(from)) {
    if (PyGen_CheckExact(held) && count < found.size()) found[count++] = held;
  }
  return found;
}

/// In torch 2.15 the C++ of `Function.apply` has this fill in the defaults of what it hands on.
bool fills_in_defaults(const PyCodeObject* code) {
  const char* name = PyUnicode_AsUTF8(code->co_name);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  return name != nullptr && file != nullptr && std::string_view(name) == "_bind_default_args" &&
         std::string_view(file).ends_with("torch/autograd/function.py");
}

bool goes_to_c(const Place& at, const Pending* caller) {
  bool gives_item = at.opcode == YIELD_VALUE;
#ifdef YIELD_FROM
  gives_item |= at.opcode == YIELD_FROM;
#endif
  if (gives_item) {
    const void* running = generator_that_runs();
    return running == nullptr || caller == nullptr ||
           std::ranges::find(caller->generators, running) == caller->generators.end();
  }
  if (caller != nullptr && caller->gives_to_c)
    return at.frame != caller->handing_on && !fills_in_defaults(at.code);
  // methods that code of C's calls and whose result it takes apart
  const char* name = PyUnicode_AsUTF8(at.code->co_name);
  if (name == nullptr || name[0] != '_' || name[1] != '_') return false;
  constexpr std::string_view kAsked =
      "__index__ __hash__ __len__ __bool__ __length_hint__ __int__ __float__";
  return is_one_of(name, kAsked);
}

}  // namespace steptape::python::watch

#endif
