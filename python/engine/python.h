#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Python objects and tensors: the few conversions that everything here uses. All need the GIL.
namespace steptape::python {

namespace py = pybind11;

/// A new reference to what a borrowed pointer names; none for null.
inline py::object borrowed(PyObject* object) {
  return object == nullptr ? py::object() : py::reinterpret_borrow<py::object>(object);
}

/// What a new reference names, which it takes over; none for null.
inline py::object stolen(PyObject* made) { return py::reinterpret_steal<py::object>(made); }
/// The same; of null, too, whose exception is cleared.
inline py::object taken(PyObject* made) {
  if (made == nullptr) PyErr_Clear();
  return stolen(made);
}
inline PyTypeObject* as_type(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type); }

/// The object, or None where it is null.
inline py::object or_none(PyObject* object) {
  return borrowed(object == nullptr ? Py_None : object);
}

/// Whether it is of exactly this class.
inline bool is_exactly(PyObject* object, PyObject* type) {
  return object != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(object)) == type;
}

/// Whether it was made at run time: by a class statement, or by code of C's.
inline bool is_heap(PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; }

/// Whether it is a float, or one of NumPy's, whose arithmetic has the bits of Python's.
inline bool is_float(PyObject* object) {
  return PyFloat_CheckExact(object) ||
         (PyFloat_Check(object) && !is_heap(Py_TYPE(object)) &&
          std::string_view(Py_TYPE(object)->tp_name) == "numpy.float64");
}

/// None, a number, a text or bytes, and of no class made of these.
inline bool is_atom(PyObject* object) {
  return object == Py_None || PyLong_CheckExact(object) || PyBool_Check(object) ||
         is_float(object) || PyUnicode_CheckExact(object) || PyBytes_CheckExact(object);
}

/// Whether it is a text or bytes, and of no class made of these.
inline bool is_text(PyObject* value) {
  return PyUnicode_CheckExact(value) || PyBytes_CheckExact(value);
}
/// The value of an int; none where that has more than 64 bits, and of anything else.
std::optional<std::int64_t> int64_of(PyObject* object);
bool is_tensor(PyObject* object);
/// Whether it is of torch.Tensor or torch.nn.Parameter itself and of no class made of them.
bool is_exact_tensor(PyObject* object);
/// Of an object that is_tensor.
const at::Tensor& tensor_of(PyObject* object);
/// A new reference to the tensor's Python object; None for an undefined one.
py::object object_of(const at::Tensor& tensor);

/// The object of a method of Python's or C's, borrowed; null for a function, for what is bound to a
/// module or a tensor, and for all else.
PyObject* bound_to(PyObject* method);

/// A module, imported where it was not. Not by the `__import__` of the code that runs: that of a
/// namedtuple has none.
py::object module_named(const char* name);
/// Whether a module of torch's has made the class.
bool is_torchs(PyTypeObject* type);
/// A Python string of which there is one.
py::object interned(const char* text);
/// What a class, or one that it is made of, holds under a name, borrowed; null where none does.
PyObject* in_class(PyTypeObject* type, const char* name);
/// The attribute of this name, which may run code; null where there is none.
py::object member(PyObject* object, const char* name);
/// What a module has under a name, which is imported, and kept for ever.
PyObject* imported(const char* module, const char* name);
/// The same of one that is loaded, else null: an import would ask the builtins of the frame that
/// runs, which may have none.
PyObject* attribute_type(const char* module, const char* name);
/// The exception that is being handled, as `sys.exception()` gives it; None where there is none.
py::object handled_exception();
/// How many items a container has, negative for none. Runs no code of a class made of list, tuple,
/// dict or set.
Py_ssize_t size_of(PyObject* container);
/// Its items in their order, as a list. Of a class of the program's that is made of a list, a
/// tuple, a set or a deque those which C's own `__iter__` gives: none of its own code runs.
py::object list_of(PyObject* container);
/// What a weak reference or proxy stands for, borrowed; None where that is gone.
PyObject* referent_of(PyObject* reference);

/// Whether it is what `functools.lru_cache` makes of a function.
inline bool is_cache_of_functools(PyObject* function) {
  return std::string_view(Py_TYPE(function)->tp_name) == "functools._lru_cache_wrapper";
}
bool is_generator(PyObject* object);
at::Generator generator_of(PyObject* object);

/// "train.Net": where the type was defined and its name there.
const std::string& type_name(PyTypeObject* type);
inline const std::string& type_name(PyObject* object) { return type_name(Py_TYPE(object)); }

/// The text of a str, for as long as it lives; "?" for anything else.
std::string_view view_of(PyObject* object);
inline std::string text_of(PyObject* object) { return std::string(view_of(object)); }
/// A short repr for messages; of an object whose class is the user's own only its type and address,
/// since repr() would run the user's code.
std::string shown(PyObject* object);

/// A class and those that it is made of, in the order in which attributes are looked up.
std::span<PyTypeObject* const> bases_of(PyTypeObject* type);
/// The dict of a class itself.
py::object dict_of_type(PyTypeObject* type);

/// Borrowed keys and values of a dict as they lie in it, for a range-based `for`; none where it is
/// null. Allocates nothing; the dict must not change meanwhile.
class Entries {
 public:
  explicit Entries(PyObject* dict) : dict_(dict) {}

  class Iterator {
   public:
    explicit Iterator(PyObject* dict) : dict_(dict) { ++*this; }
    std::pair<PyObject*, PyObject*> operator*() const { return {key_, value_}; }
    Iterator& operator++() {
      if (dict_ != nullptr && PyDict_Next(dict_, &at_, &key_, &value_) == 0) dict_ = nullptr;
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return dict_ == nullptr; }

   private:
    PyObject* dict_;
    Py_ssize_t at_ = 0;
    PyObject* key_ = nullptr;
    PyObject* value_ = nullptr;
  };
  Iterator begin() const { return Iterator(dict_); }
  static std::default_sentinel_t end() { return {}; }

 private:
  PyObject* dict_;
};

/// Borrowed keys and values of a dict in its order, which of an OrderedDict is one of its own.
std::vector<std::pair<PyObject*, PyObject*>> entries_of(PyObject* dict);
/// Whether a dict has an order beside the one that PyDict_Next goes by.
inline bool has_own_order(PyObject* dict) { return PyODict_Check(dict) && PyDict_Size(dict) > 1; }

/// A borrowed reference to the instance's `__dict__`; null for an object without one, or without
/// one yet.
PyObject* dict_of(PyObject* object);
/// The same; where the object can have one, it has one from now on.
PyObject* dict_made_of(PyObject* object);
/// Whether the program has set a trace or profile function in this thread, as a debugger does.
/// Those written in C (cProfile, coverage) do not count: they report what runs.
bool has_tracer();
/// A threading.local, of no class made of it: its `__dict__` is that of the thread which asks.
bool is_thread_local(PyObject* object);

/// Of this package and of torch, whose frames are not the program's own, and of Python's library.
struct Folders {
  std::string own, torchs;
  std::vector<std::string> shared;
};
Folders& folders();

/// The line of the program's own code that runs now, "train.py:41"; where only other packages are
/// on the stack, theirs. Takes the GIL. Empty in a thread without Python frames.
std::string locate();

}  // namespace steptape::python
