// A Python module that writes down what a call executes, as the Python front end is told of it: one
// line an instruction, with what it left.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "python/engine/watch/instruction.h"
#include "python/engine/watch/layout.h"

namespace {

namespace watch = steptape::python::watch;
using watch::Operation;

constexpr std::array kNames = {"None",
                               "LoadGlobal",
                               "StoreGlobal",
                               "DeleteGlobal",
                               "LoadCell",
                               "StoreCell",
                               "DeleteCell",
                               "CloseOver",
                               "LoadAttribute",
                               "StoreAttribute",
                               "DeleteAttribute",
                               "LoadSuper",
                               "LoadItem",
                               "StoreItem",
                               "DeleteItem",
                               "Binary",
                               "Compare",
                               "Identity",
                               "Contains",
                               "Unary",
                               "Test",
                               "Format",
                               "Iterate",
                               "Next",
                               "Spread",
                               "Hash",
                               "GiveOut",
                               "Length",
                               "MatchClass",
                               "MatchKeys",
                               "Call",
                               "Enter",
                               "Import",
                               "Reraise",
                               "Raise"};
static_assert(kNames.size() == static_cast<std::size_t>(Operation::kRaise) + 1);

std::string text_of(PyObject* object) {
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  return text == nullptr ? "?" : text;
}

bool is_plain(PyObject* object) {
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
         PyFloat_CheckExact(object) || PyUnicode_CheckExact(object);
}

std::string joined(PyObject* const* items, Py_ssize_t count);

/// Runs no code of the program's.
std::string shown(PyObject* object) {
  if (object == nullptr) return "null";
  if (is_plain(object)) {
    PyObject* text = PyObject_Repr(object);
    std::string shown = text_of(text);
    Py_DECREF(text);
    return shown;
  }
  if (PyTuple_CheckExact(object)) {
    return "(" + joined(&PyTuple_GET_ITEM(object, 0), PyTuple_GET_SIZE(object)) + ")";
  }
  if (PySlice_Check(object)) {
    auto* slice = reinterpret_cast<PySliceObject*>(object);
    return shown(slice->start) + ":" + shown(slice->stop);
  }
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  if (PyFunction_Check(object)) {
    return text_of(reinterpret_cast<PyFunctionObject*>(object)->func_name);
  }
  if (PyCFunction_Check(object)) {
    return reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name;
  }
  if (PyMethod_Check(object)) {
    return shown(PyMethod_GET_SELF(object)) + "." + shown(PyMethod_GET_FUNCTION(object));
  }
  return std::string("<") + Py_TYPE(object)->tp_name + ">";
}

std::string joined(PyObject* const* items, Py_ssize_t count) {
  std::string text;
  for (Py_ssize_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + shown(items[i]);
  return text;
}

std::string shown_call(const watch::Instruction& in) {
  std::string text = shown(in.callee) + "(";
  if (in.spread != nullptr) {
    text += "*" + shown(in.spread);
    if (in.spread_named != nullptr) text += ", **" + shown(in.spread_named);
    return text + ")";
  }
  const Py_ssize_t named = in.keywords == nullptr ? 0 : PyTuple_GET_SIZE(in.keywords);
  for (Py_ssize_t i = 0; i < in.count; ++i) {
    if (i > 0) text += ", ";
    const Py_ssize_t name = i - (in.count - named);
    if (name >= 0) text += text_of(PyTuple_GET_ITEM(in.keywords, name)) + "=";
    text += shown(in.arguments[i]);
  }
  return text + ")";
}

std::string shown(const watch::Instruction& in) {
  std::string text = kNames[static_cast<std::size_t>(in.operation)];
  if (in.operation == Operation::kCall) return text + " " + shown_call(in);
  for (Py_ssize_t i = 0; in.operation == Operation::kHash && i < in.count; i += in.stride) {
    text += " " + shown(in.arguments[i]);
  }
  if (in.is_own) text += " own";
  if (in.name != nullptr) text += " " + text_of(in.name);
  const std::array parts = {in.first, in.second, in.third};
  // the content of a cell is its result
  const bool is_cell = in.first != nullptr && PyCell_Check(in.first);
  for (std::size_t i = is_cell ? 1 : 0; i < parts.size(); ++i) {
    if (parts[i] != nullptr) text += (i > (is_cell ? 1U : 0U) ? ", " : " ") + shown(parts[i]);
  }
  return text;
}

bool has_result(Operation operation) {
  const std::string name = kNames[static_cast<std::size_t>(operation)];
  return !name.starts_with("Store") && !name.starts_with("Delete") &&
         operation != Operation::kSpread && operation != Operation::kTest;
}

class Log final : public watch::Listener {
 public:
  /// Of code of the file `file`; a result that is the int `from` becomes `to`.
  Log(std::string file, PyObject* from, PyObject* to)
      : file_(std::move(file)), from_(from), to_(to) {}

  bool wants(PyCodeObject* code, bool) override { return text_of(code->co_filename) == file_; }
  bool leads(PyCodeObject*) override { return true; }

  bool before(const watch::Instruction& in) override {
    const bool waits =
        in.operation != watch::Operation::kGiveOut && in.operation != watch::Operation::kHash;
    if (waits) waiting_.emplace_back(lines_.size(), in.operation);
    lines_.push_back(shown(in));
    return waits;
  }

  void after(PyObject** result) override {
    const auto [line, operation] = waiting_.back();
    waiting_.pop_back();
    if (!has_result(operation)) {
      if (result != nullptr) lines_[line] += " -> what it does not have";
      return;
    }
    if (result != nullptr && PyLong_CheckExact(*result) && from_ != Py_None &&
        PyObject_RichCompareBool(*result, from_, Py_EQ) == 1) {
      Py_INCREF(to_);
      Py_DECREF(std::exchange(*result, to_));
    }
    const bool is_cell = result != nullptr && PyCell_Check(*result);
    lines_[line] += " -> " + std::string(result == nullptr ? "nothing"
                                         : is_cell         ? "cell"
                                                           : shown(*result));
  }

  /// Of functions whose name begins so.
  bool awaits_end(PyCodeObject* code) override {
    return text_of(code->co_name).starts_with("awaited");
  }
  void leave() override { lines_.emplace_back("leave"); }

  void enter(PyObject* function, PyCodeObject* code, PyObject* const* arguments, Py_ssize_t count,
             bool) override {
    if (awaits_end(code) && count > 0) {
      PyObject* first = arguments[0];
      if (first != nullptr && PyCell_Check(first)) first = PyCell_GET(first);
      lines_.push_back("begin " + text_of(code->co_name) + " " +
                       (first == nullptr ? "nothing" : shown(first)));
    }
    if (function == nullptr) return;
    lines_.push_back("enter " + text_of(reinterpret_cast<PyFunctionObject*>(function)->func_name));
  }

  PyObject* lines() const {
    PyObject* list = PyList_New(0);
    for (const std::string& line : lines_) {
      PyObject* text = PyUnicode_FromString(line.c_str());
      PyList_Append(list, text);
      Py_DECREF(text);
    }
    return list;
  }
  bool waits() const { return !waiting_.empty(); }

 private:
  std::string file_;
  PyObject* from_;
  PyObject* to_;
  std::vector<std::string> lines_;
  std::vector<std::pair<std::size_t, Operation>> waiting_;
};

/// The result, or None and the name of the exception.
std::pair<PyObject*, std::string> call(PyObject* function) {
  PyObject* result = PyObject_CallNoArgs(function);
  if (result != nullptr) return {result, ""};
  std::string raised = reinterpret_cast<PyTypeObject*>(PyErr_Occurred())->tp_name;
  PyErr_Clear();
  Py_INCREF(Py_None);
  return {Py_None, raised};
}

/// log(function, file, from, to): what calling it executes, its result, what it raised.
PyObject* log(PyObject*, PyObject* arguments) {
  PyObject* function = nullptr;
  const char* file = nullptr;
  PyObject* from = Py_None;
  PyObject* to = Py_None;
  if (!PyArg_ParseTuple(arguments, "Os|OO", &function, &file, &from, &to)) return nullptr;
  Log listener(file, from, to);
  const char* why = nullptr;
  if (!watch::start(listener, &why)) {
    PyErr_SetString(PyExc_RuntimeError, why);
    return nullptr;
  }
  const auto [result, raised] = call(function);
  const bool is_complete = watch::stop();
  if (listener.waits()) {
    PyErr_SetString(PyExc_AssertionError, "the result of an instruction was never told");
    return nullptr;
  }
  return Py_BuildValue("NNsN", listener.lines(), result, raised.c_str(),
                       PyBool_FromLong(static_cast<long>(is_complete)));
}

/// Whether the depth of the stack is known at each instruction of a code object.
PyObject* is_sound(PyObject*, PyObject* code) {
#if STEPTAPE_KNOWS_BYTECODE && PY_VERSION_HEX >= 0x030C0000
  return PyBool_FromLong(
      static_cast<long>(watch::Layout(reinterpret_cast<PyCodeObject*>(code)).is_sound()));
#else
  static_cast<void>(code);
  Py_RETURN_TRUE;  // the interpreter saves it
#endif
}

PyObject* unknown_opcode(PyObject*, PyObject*) {
  const char* name = watch::unknown_opcode();
  if (name == nullptr) Py_RETURN_NONE;
  return PyUnicode_FromString(name);
}

std::array methods = {PyMethodDef{"log", &log, METH_VARARGS, nullptr},
                      PyMethodDef{"is_sound", &is_sound, METH_O, nullptr},
                      PyMethodDef{"unknown_opcode", &unknown_opcode, METH_NOARGS, nullptr},
                      PyMethodDef{nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT,
                      "watch_events",
                      nullptr,
                      -1,
                      methods.data(),
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_watch_events() { return PyModule_Create(&module); }
