#include "python/engine/python.h"

#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <utility>

namespace steptape::python {

// not isinstance(), whose metaclass runs Python code
namespace {

/// As PyObject_IsInstance, which would ask the object for its class.
bool is_kind_of(PyObject* object, PyObject* type) {
  return type != nullptr && PyType_IsSubtype(Py_TYPE(object), as_type(type)) != 0;
}

}  // namespace

std::optional<std::int64_t> int64_of(PyObject* object) {
  int overflow = PyLong_Check(object) ? 0 : 1;
  const long long value = overflow == 0 ? PyLong_AsLongLongAndOverflow(object, &overflow) : 0;
  return overflow == 0 ? std::optional<std::int64_t>(value) : std::nullopt;
}

bool is_tensor(PyObject* object) {
  return THPVariable_CheckExact(object) || is_kind_of(object, THPVariableClass);
}

bool is_exact_tensor(PyObject* object) { return THPVariable_CheckExact(object); }

const at::Tensor& tensor_of(PyObject* object) { return THPVariable_Unpack(object); }

py::object object_of(const at::Tensor& tensor) { return stolen(THPVariable_Wrap(tensor)); }

py::object handled_exception() {
#if PY_VERSION_HEX >= 0x030B0000
  PyObject* exception = PyErr_GetHandledException();
#else
  PyObject *type = nullptr, *exception = nullptr, *traceback = nullptr;
  PyErr_GetExcInfo(&type, &exception, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
#endif
  return exception == nullptr ? py::none() : stolen(exception);
}

namespace {

/// The class that a method of C's comes from: the object's own, or one that is made of.
PyTypeObject* class_with(PyObject* object, const char* method) {
  const py::object name = interned(method);
  for (PyTypeObject* base : bases_of(Py_TYPE(object))) {
    PyObject* const found = PyDict_GetItemWithError(dict_of_type(base).ptr(), name.ptr());
    if (found != nullptr && Py_TYPE(found) == &PyWrapperDescr_Type) return base;
  }
  return Py_TYPE(object);
}

}  // namespace

py::object list_of(PyObject* container) {
  py::object items;
  if (PyList_Check(container)) {
    items = stolen(PyList_GetSlice(container, 0, PyList_GET_SIZE(container)));
  } else if (PyTuple_Check(container)) {
    items = stolen(PyTuple_GetSlice(container, 0, PyTuple_GET_SIZE(container)));
    items = stolen(PySequence_List(items.ptr()));
  } else if (getiterfunc iterate = class_with(container, "__iter__")->tp_iter) {
    items = stolen(iterate(container));
    if (items) items = stolen(PySequence_List(items.ptr()));
  } else {
    items = stolen(PySequence_List(container));
  }
  if (!items) throw py::error_already_set();
  return items;
}

Py_ssize_t size_of(PyObject* container) {
  if (PyList_Check(container)) return PyList_GET_SIZE(container);
  if (PyTuple_Check(container)) return PyTuple_GET_SIZE(container);
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  if (PyAnySet_Check(container)) return PySet_GET_SIZE(container);
  PyTypeObject* const type = class_with(container, "__len__");
  lenfunc measure = type->tp_as_sequence == nullptr ? nullptr : type->tp_as_sequence->sq_length;
  return measure == nullptr ? PyObject_Size(container) : measure(container);
}

bool is_torchs(PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return name.starts_with("torch") || name.starts_with("_TensorBase") ||
         type_name(type).starts_with("torch");
}

PyObject* bound_to(PyObject* method) {
  PyObject* self = PyMethod_Check(method)      ? PyMethod_GET_SELF(method)
                   : PyCFunction_Check(method) ? PyCFunction_GET_SELF(method)
                                               : nullptr;
  return self == nullptr || PyModule_Check(self) || is_tensor(self) ? nullptr : self;
}

py::object interned(const char* text) { return stolen(PyUnicode_InternFromString(text)); }

PyObject* in_class(PyTypeObject* type, const char* name) {
  return _PyType_Lookup(type, interned(name).ptr());
}

py::object member(PyObject* object, const char* name) {
  return taken(PyObject_GetAttrString(object, name));
}

py::object module_named(const char* name) {
  const auto outermost = stolen(PyImport_ImportModuleLevel(name, nullptr, nullptr, nullptr, 0));
  auto module = outermost ? stolen(PyImport_GetModule(py::str(name).ptr())) : py::object();
  if (!module) throw py::error_already_set();
  return module;
}

PyObject* imported(const char* module, const char* name) {
  return py::object(module_named(module).attr(name)).release().ptr();
}

PyObject* attribute_type(const char* module, const char* name) {
  const auto found = stolen(PyImport_GetModule(py::str(module).ptr()));
  return found ? py::object(found.attr(name)).release().ptr() : nullptr;
}

PyObject* referent_of(PyObject* reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* held = nullptr;
  if (PyWeakref_GetRef(reference, &held) < 0) PyErr_Clear();
  if (held == nullptr) return Py_None;
  Py_DECREF(held);  // others hold it
  return held;
#else
  return PyWeakref_GetObject(reference);
#endif
}

bool is_generator(PyObject* object) { return is_kind_of(object, THPGeneratorClass); }

// LibTorch's own function takes none of a subclass
at::Generator generator_of(PyObject* object) {
  return reinterpret_cast<THPGenerator*>(object)->cdata;
}

const std::string& type_name(PyTypeObject* type) {
  struct Known {
    unsigned int version = 0;
    py::object name;  // a renamed class keeps its version
    std::string text;
  };
  static auto& all = *new std::unordered_map<PyTypeObject*, Known>();
  PyObject* own_name = (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0
                           ? reinterpret_cast<PyHeapTypeObject*>(type)->ht_qualname
                           : nullptr;
  Known& known = all[type];
  if (known.version != 0 && known.version == type->tp_version_tag && known.name.ptr() == own_name) {
    return known.text;
  }
  const auto attribute = [type](const char* name) {
    const py::object found = member(reinterpret_cast<PyObject*>(type), name);
    return found ? text_of(found.ptr()) : "?";
  };
  const std::string module = attribute("__module__");
  const std::string name = attribute("__qualname__");
  known.text = module == "builtins" ? name : module + "." + name;
  known.name = borrowed(own_name);
  known.version = type->tp_version_tag;
  return known.text;
}

std::string_view view_of(PyObject* object) {
  if (!PyUnicode_Check(object)) return "?";
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return {text, static_cast<std::size_t>(size)};
}

namespace {

bool is_plain_type(PyTypeObject* type) {
  return type == Py_TYPE(Py_None) || type == &PyBool_Type || type == &PyLong_Type ||
         type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyBytes_Type;
}

std::string shown_to_depth(PyObject* object, int depth);

std::string shown_items(PyObject* list, char open, char close, int depth) {
  if (depth == 0) return std::string(1, open) + "…" + close;
  constexpr Py_ssize_t kMost = 4;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(list);
  std::string text(1, open);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (i > 0) text += ", ";
    if (i == kMost) {
      text += "… " + std::to_string(size) + " items";
      break;
    }
    text += shown_to_depth(PySequence_Fast_GET_ITEM(list, i), depth - 1);
  }
  return text + close;
}

std::string shown_to_depth(PyObject* object, int depth) {
  if (object == nullptr) return "nothing";
  if (PyList_CheckExact(object)) return shown_items(object, '[', ']', depth);
  if (PyTuple_CheckExact(object)) return shown_items(object, '(', ')', depth);
  if (PyDict_CheckExact(object)) {
    return "a dict of " + std::to_string(PyDict_Size(object)) + " items";
  }
  const bool is_of_torch = !is_heap(Py_TYPE(object)) && type_name(object).starts_with("torch.");
  if (!is_plain_type(Py_TYPE(object)) && !is_of_torch) {  // as dtypes and devices are
    char address[32];
    std::snprintf(address, sizeof address, "%p", static_cast<void*>(object));
    PyObject* function = PyMethod_Check(object) ? PyMethod_GET_FUNCTION(object) : object;
    std::string name;
    if (PyFunction_Check(function))
      name = " " + text_of(reinterpret_cast<PyFunctionObject*>(function)->func_qualname);
    return "<" + type_name(object) + name + " at " + address + ">";
  }
  const auto repr = taken(PyObject_Repr(object));
  if (!repr) return "?";
  std::string text = text_of(repr.ptr());
  constexpr std::size_t kLongest = 80;
  if (text.size() > kLongest) {
    // not in the middle of a character
    std::size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    text = text.substr(0, end) + "…";
  }
  return text;
}

}  // namespace

std::string shown(PyObject* object) {
  constexpr int kDepth = 2;
  return shown_to_depth(object, kDepth);
}

py::object dict_of_type(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return stolen(PyType_GetDict(type));
#else
  return borrowed(type->tp_dict);
#endif
}

std::vector<std::pair<PyObject*, PyObject*>> entries_of(PyObject* dict) {
  std::vector<std::pair<PyObject*, PyObject*>> entries;
  if (has_own_order(dict)) {
    // one whose keys have become equal goes round for ever
    const auto keys = stolen(class_with(dict, "__iter__")->tp_iter(dict));
    for (Py_ssize_t left = PyDict_Size(dict); keys && left > 0; --left) {
      const auto key = stolen(PyIter_Next(keys.ptr()));
      if (!key) break;
      entries.emplace_back(key.ptr(), PyDict_GetItemWithError(dict, key.ptr()));
    }
    PyErr_Clear();
    return entries;
  }
  for (const auto entry : Entries(dict)) entries.push_back(entry);
  return entries;
}

std::span<PyTypeObject* const> bases_of(PyTypeObject* type) {
  PyObject* const order = type->tp_mro;
  if (order == nullptr) return {};
  auto* const first = reinterpret_cast<PyTypeObject* const*>(&PyTuple_GET_ITEM(order, 0));
  return {first, static_cast<std::size_t>(PyTuple_GET_SIZE(order))};
}

PyObject* dict_of(PyObject* object) {
  PyObject** dict = _PyObject_GetDictPtr(object);
  return dict != nullptr ? *dict : dict_made_of(object);
}

bool has_tracer() {
  const PyThreadState* thread = PyThreadState_Get();
  const auto is_programs = [](PyObject* tracer) {
    if (tracer == nullptr) return false;
    return PyFunction_Check(tracer) || PyMethod_Check(tracer) || PyCFunction_Check(tracer);
  };
  return is_programs(thread->c_traceobj) || is_programs(thread->c_profileobj);
}

bool is_thread_local(PyObject* object) {
  static PyObject* const type = imported("_thread", "_local");
  return is_exactly(object, type);
}

PyObject* dict_made_of(PyObject* object) {
  if (is_thread_local(object)) return member(object, "__dict__").ptr();  // the object holds it
  return taken(PyObject_GenericGetDict(object, nullptr)).ptr();          // the instance holds it
}

namespace {

enum class Whose { kProgram, kPackage, kOurs };

Whose whose(std::string_view file) {
  const auto is_below = [file](const std::string& folder) {
    return !folder.empty() && file.starts_with(folder);
  };
  if (is_below(folders().own) || is_below(folders().torchs) || file.starts_with('<'))
    return Whose::kOurs;
  const bool is_package = file.find("/site-packages/") != file.npos ||
                          file.find("/dist-packages/") != file.npos ||
                          file.find("/lib/python3") != file.npos;
  return is_package ? Whose::kPackage : Whose::kProgram;
}

std::string place_of(PyFrameObject* frame, std::string_view file) {
  return std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(frame));
}

}  // namespace

Folders& folders() {
  static Folders set;
  return set;
}

std::string locate() {
  if (Py_IsInitialized() == 0) return "";
  const py::gil_scoped_acquire gil;
  auto frame = borrowed(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string package;
  while (frame) {
    auto* current = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = stolen(reinterpret_cast<PyObject*>(PyFrame_GetCode(current)));
    const std::string_view file = view_of(reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename);
    const Whose owner = whose(file);
    if (owner == Whose::kProgram) return place_of(current, file);
    if (owner == Whose::kPackage && package.empty()) package = place_of(current, file);
    frame = stolen(reinterpret_cast<PyObject*>(PyFrame_GetBack(current)));
  }
  return package;
}

}  // namespace steptape::python
