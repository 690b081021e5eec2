#include "python/engine/arguments.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "python/engine/structure.h"

namespace steptape::python {
namespace {

class Flattening {
 public:
  explicit Flattening(Arguments& arguments) : arguments_(arguments) {}

  void add(PyObject* value, int depth = 32) {
    if (is_tensor(value)) {
      arguments_.has_subclass |= !is_exact_tensor(value);
      leaf(tensor_of(value), 't');
    } else if (PyBool_Check(value)) {
      leaf(value == Py_True, 'b');
    } else if (PyFloat_Check(value)) {
      leaf(PyFloat_AS_DOUBLE(value), 'f');
    } else if (value == Py_None) {
      shape_ += 'N';
    } else if (PyLong_Check(value)) {
      add_integer(value);
    } else if (PyUnicode_CheckExact(value)) {
      leaf(text_of(value), 's');
    } else if (depth == 0 || !add_container(value, depth)) {
      add_object(value);
    }
  }

  void add_text(std::string_view text) { shape_ += text; }
  std::string take_shape() { return std::move(shape_); }

 private:
  template <typename T>
  void leaf(T&& value, char kind) {
    arguments_.leaves.emplace_back(std::forward<T>(value));
    shape_ += kind;
  }

  void add_integer(PyObject* value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) {
      leaf(static_cast<std::int64_t>(number), 'i');
    } else {
      shape_ += shown(value);
    }
  }

  bool add_container(PyObject* value, int depth) {
    if (PyTuple_Check(value) || PyList_CheckExact(value)) {
      shape_ += PyList_CheckExact(value) ? '[' : '(';
      if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) add_address(Py_TYPE(value));
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
        add(PySequence_Fast_GET_ITEM(value, i), depth - 1);
      }
      shape_ += ')';
      return true;
    }
    if (PyDict_Check(value)) {
      add_dict(value, PyDict_CheckExact(value) ? nullptr : Py_TYPE(value), depth);
      return true;
    }
    if (is_dataclass(value)) {
      PyObject* dict = dict_of(value);
      if (dict == nullptr) return false;
      add_dict(dict, Py_TYPE(value), depth);
      return true;
    }
    return false;
  }

  void add_dict(PyObject* dict, PyTypeObject* type, int depth) {
    shape_ += '{';
    if (type != nullptr) add_address(type);
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value) != 0;) {
      if (PyUnicode_CheckExact(key)) {
        shape_ += text_of(key);
      } else {
        shape_ += shown(key);
      }
      shape_ += ':';
      add(value, depth - 1);
    }
    shape_ += '}';
  }

  void add_object(PyObject* value) {
    if (!is_fixed(value)) arguments_.opaque = type_name(value);
    arguments_.objects.push_back(value);
    shape_ += 'o';
    add_address(value);
  }

  void add_address(const void* address) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits,
                                   reinterpret_cast<std::uintptr_t>(address), 16);
    shape_.append(digits, end.ptr);
    shape_ += ' ';
  }

  Arguments& arguments_;
  std::string shape_;
};

}  // namespace

Arguments flatten(PyObject* positional, PyObject* keywords, Order order) {
  Arguments arguments;
  Flattening flattening(arguments);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positional); ++i) {
    PyObject* value = PyTuple_GET_ITEM(positional, i);
    if (PyFloat_CheckExact(value)) arguments.reals.push_back({arguments.leaves.size(), i, nullptr});
    flattening.add(value);
  }
  struct Named {
    std::string name;
    PyObject* keyword;
    PyObject* value;
  };
  std::vector<Named> named;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t at = 0; keywords != nullptr && PyDict_Next(keywords, &at, &key, &value) != 0;) {
    named.push_back({text_of(key), key, value});
  }
  if (order == Order::kAny) std::ranges::sort(named, {}, &Named::name);
  for (const Named& argument : named) {
    flattening.add_text(argument.name + "=");
    if (PyFloat_CheckExact(argument.value)) {
      arguments.reals.push_back({arguments.leaves.size(), -1, argument.keyword});
    }
    flattening.add(argument.value);
  }
  arguments.leaves.emplace_back(flattening.take_shape());
  return arguments;
}

}  // namespace steptape::python
