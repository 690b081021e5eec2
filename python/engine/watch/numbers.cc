#include <algorithm>
#include <array>
#include <string_view>

#include "python/engine/structure.h"
#include "python/engine/watch/watcher.h"
#include "recorder/notes.h"

/// Numbers that go into ops and come out of them. An op takes the bare number: which one it was is
/// told to the recorder before each function of torch's that is written in C, wherever it is
/// called. No mode of torch's is used for that, as torch's own code runs another way under one.
namespace steptape::python::watch {
namespace {

/// They give the program a number of a tensor; of other functions what they read is their own.
constexpr std::array<std::string_view, 11> kGive = {
    "__bool__", "__float__",  "__int__", "__index__", "__complex__",   "__contains__",
    "tolist",   "is_nonzero", "equal",   "allclose",  "nonzero_static"};

struct Outlet {
  std::string_view method;
  RefusalCode code;
  std::string_view what;
};
/// Methods of tensors that give the host values or memory, and leave no op.
constexpr std::array<Outlet, 5> kOutlets = {{
    {"tolist", RefusalCode::kHostRead, "gives the host values of a tensor, which leaves no op"},
    {"numpy", RefusalCode::kWrittenOutside, "gives the host the memory of a tensor"},
    {"data_ptr", RefusalCode::kWrittenOutside, "gives the host the memory of a tensor"},
    {"untyped_storage", RefusalCode::kWrittenOutside, "gives the host the memory of a tensor"},
    {"_to_dlpack", RefusalCode::kWrittenOutside, "gives the host the memory of a tensor"},
}};

/// They make tensors of what the host holds.
constexpr std::array<std::string_view, 6> kMakers = {"tensor",  "as_tensor",  "from_numpy",
                                                     "asarray", "frombuffer", "new_tensor"};

/// Functions of C's that torch's code calls with numbers, and that look at none.
constexpr std::array<std::string_view, 14> kPassOn = {"apply",       "isinstance",
                                                      "getattr",     "setattr",
                                                      "__setattr__", "__instancecheck__",
                                                      "append",      "extend",
                                                      "update",      "get",
                                                      "items",       "cast",
                                                      "type",        "_record_function_enter_new"};

/// Whether it is an object of the buffer protocol, as NumPy's arrays are: its content shows in no
/// guard.
bool is_memory(PyObject* value, int depth = 3) {
  if (is_tensor(value) || PyBytes_Check(value)) return false;
  if (depth > 0 && (PyList_Check(value) || PyTuple_Check(value))) {
    constexpr Py_ssize_t kMost = 64;
    for (Py_ssize_t i = 0; i < std::min(PySequence_Fast_GET_SIZE(value), kMost); ++i) {
      if (is_memory(PySequence_Fast_GET_ITEM(value, i), depth - 1)) return true;
    }
    return false;
  }
  return PyObject_CheckBuffer(value) != 0;
}

bool may_hold_number(PyObject* value) {
  return is_followed(value) || PyTuple_Check(value) || PyList_Check(value) ||
         PyDict_CheckExact(value) || PySlice_Check(value);
}

/// Whether it does ops: a method of tensors, or one of the functions that torch shows of them.
bool does_ops(PyObject* function) {
  PyObject* self = PyCFunction_GET_SELF(function);
  if (self == nullptr) {  // a static method, of the class that torch's functions are of
    PyObject* module = reinterpret_cast<PyCFunctionObject*>(function)->m_module;
    return module != nullptr && text_of(module) == "torch";
  }
  if (is_tensor(self)) return true;
  if (!PyModule_Check(self)) return false;
  const char* name = PyModule_GetName(self);
  if (name == nullptr) PyErr_Clear();
  return name != nullptr && std::string_view(name).starts_with("torch._C._");
}

struct Hooks {
  py::object announce, withdraw, follow, convert;
};
Hooks& hooks() {
  static auto* made = new Hooks();
  return *made;
}

}  // namespace

void Watcher::set_numbers(py::object announce, py::object withdraw, py::object follow,
                          py::object convert) {
  hooks() = {std::move(announce), std::move(withdraw), std::move(follow), std::move(convert)};
}

bool Watcher::widen(const Instruction& in) {
  const bool is_operator =
      in.operation == Operation::kBinary || in.operation == Operation::kCompare;
  if (!is_operator || in.second_at == nullptr || !PyFloat_CheckExact(in.first) ||
      !PyLong_Check(in.second) || !is_followed(in.second)) {
    return false;
  }
  try {
    py::object widened = hooks().convert(borrowed(in.second), py::none());
    if (widened.is_none()) return false;
    Py_DECREF(std::exchange(*in.second_at, widened.release().ptr()));
    return true;
  } catch (const std::exception&) {
    PyErr_Clear();
    return false;
  }
}

bool Watcher::convert(PyObject* number, PyObject* kind) {
  py::object converted = hooks().convert(borrowed(number), borrowed(kind));
  if (converted.is_none()) {
    escape(number);
    return false;
  }
  awaited_.back().converted = std::move(converted);
  return true;
}

bool Watcher::give_numbers(const std::vector<PyObject*>& values) {
  if (!std::ranges::any_of(values, &may_hold_number)) return false;
  py::tuple given(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    given[i] = py::reinterpret_borrow<py::object>(values[i]);
  }
  return hooks().announce && py::cast<bool>(hooks().announce(given));
}

bool Watcher::begin_ops(const std::vector<PyObject*>& values, Reads reads) {
  const recorder::Notes* notes = recorder::Notes::current();
  if (notes == nullptr) return false;
  Awaited& awaited = awaited_.back();
  awaited.reads = reads;
  awaited.first_read = notes->reads();
  awaited.has_announced = give_numbers(values);
  return true;
}

void Watcher::end_ops(const Awaited& awaited, PyObject** result) {
  recorder::Notes* notes = recorder::Notes::current();
  if (notes == nullptr) return;
  if (awaited.has_announced) hooks().withdraw();
  if (notes->reads() == awaited.first_read) return;
  if (awaited.reads == Reads::kInternal) notes->keep_internal(awaited.first_read);
  if (awaited.reads != Reads::kFollowed || result == nullptr || *result == nullptr) return;
  // what torch's own optimizers do with the values they read is arithmetic and comparisons alone
  if (awaited.is_in_optimizer) notes->follow_read(notes->newest_read());
  py::object followed =
      hooks().follow(py::reinterpret_borrow<py::object>(*result), notes->newest_read());
  Py_DECREF(std::exchange(*result, followed.release().ptr()));
}

bool Watcher::call_of_torch(PyObject* callee, std::string_view name,
                            const std::vector<PyObject*>& arguments) {
  // unbound, the tensor comes first
  const bool is_bound = PyCFunction_Check(callee);
  const bool is_method =
      is_bound ? PyCFunction_GET_SELF(callee) != nullptr && is_tensor(PyCFunction_GET_SELF(callee))
               : !arguments.empty() && is_tensor(arguments.front());
  if (is_method || name == "_to_dlpack") {
    for (const Outlet& outlet : kOutlets) {
      if (outlet.method == name) {
        refuse(outlet.code, "`" + std::string(name) + "` " + std::string(outlet.what));
      }
    }
  }
  const bool is_maker = is_one_of(name, kMakers);
  if (is_maker && std::ranges::any_of(arguments, [](PyObject* a) { return is_memory(a); })) {
    refuse(RefusalCode::kHostTensorVaries,
           "`" + std::string(name) +
               "` makes a tensor of memory of the host, which may hold something else in the next "
               "step");
  }
  const bool is_op = is_bound ? does_ops(callee) : is_method;
  if (!is_op) {
    if (!is_one_of(name, kPassOn) && name.find("has_torch_function") == name.npos) {
      for (PyObject* argument : arguments) escape(argument);
    }
    return false;
  }
  if (is_method && name == "item") return begin_ops({}, Reads::kFollowed);
  return begin_ops(arguments, is_one_of(name, kGive) ? Reads::kGiven : Reads::kInternal);
}

bool Watcher::operation_of_torch(const Instruction& in) {
  switch (in.operation) {
    case Operation::kBinary:
    case Operation::kCompare:
      if (!is_tensor(in.first) && !is_tensor(in.second)) return false;
      return begin_ops({in.first, in.second}, Reads::kInternal);
    case Operation::kLoadItem:
      return is_tensor(in.first) && begin_ops({in.second}, Reads::kInternal);
    case Operation::kStoreItem:
      return is_tensor(in.first) && begin_ops({in.second, in.third}, Reads::kInternal);
    default:
      return false;
  }
}

bool Watcher::look_at_numbers(const Instruction& in) {
  if (in.operation == Operation::kBinary || in.operation == Operation::kCompare) {
    escape_operands(in.first, in.second);
  } else if (in.operation == Operation::kFormat) {
    escape(in.first);
  }
  if (in.operation != Operation::kCall) return operation_of_torch(in);
  PyObject* callee = in.callee;
  if (callee == nullptr) return false;
  const bool is_of_c = PyCFunction_Check(callee) || Py_TYPE(callee) == &PyMethodDescr_Type ||
                       Py_TYPE(callee) == &PyWrapperDescr_Type;
  if (!is_of_c) return false;
  const GivenToCall given = given_to(in);
  std::vector<PyObject*> arguments = given.positional;
  arguments.insert(arguments.end(), given.named.begin(), given.named.end());
  // an operator by its schema is a function of pybind11's in a capsule
  const bool is_operator = PyCFunction_Check(callee) && PyCFunction_GET_SELF(callee) != nullptr &&
                           PyCapsule_CheckExact(PyCFunction_GET_SELF(callee)) &&
                           text_of(in.code->co_filename).ends_with("torch/_ops.py");
  awaited_.back().is_in_optimizer =
      text_of(in.code->co_filename).find("/torch/optim/") != std::string::npos;
  if (is_operator) return begin_ops(arguments, Reads::kInternal);
  const char* name = PyCFunction_Check(callee)
                         ? reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name
                         : PyUnicode_AsUTF8(reinterpret_cast<PyDescrObject*>(callee)->d_name);
  return name != nullptr && call_of_torch(callee, name, arguments);
}

}  // namespace steptape::python::watch
