#include "python/engine/arguments.h"

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/tensor_numpy.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "python/engine/moving.h"
#include "python/engine/plain.h"
#include "python/engine/structure.h"

namespace steptape::python {
namespace {

constexpr int kMostDepth = 32;  // of containers in each other

/// As those of NumPy are, which have no attributes.
bool is_float_of_c(PyObject* value) { return PyFloat_Check(value) && !is_heap(Py_TYPE(value)); }

class Flattening {
 public:
  Flattening(Arguments& arguments, const Flatten& how) : arguments_(arguments), how_(how) {}

  void set_name(std::string name) { name_ = std::move(name); }

  void add(PyObject* value, int depth = kMostDepth) {
    if (is_tensor(value)) {
      arguments_.has_subclass |= !is_exact_tensor(value);
      leaf(tensor_of(value), 't');
      if (how_.has_offsets && tensor_of(value).has_storage())
        add_sized(std::to_string(tensor_of(value).storage_offset()));
      if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != THPVariableClass)
        add_address(Py_TYPE(value));
      add_burden(tensor_of(value));
      add_names(value);
    } else if (PyBool_Check(value)) {
      leaf(value == Py_True, 'b');
    } else if (PyFloat_CheckExact(value) || is_float_of_c(value)) {
      if (!PyFloat_CheckExact(value)) add_address(Py_TYPE(value));
      if (std::isnan(PyFloat_AS_DOUBLE(value))) add_address(value);  // see Plain: which one counts
      leaf(PyFloat_AS_DOUBLE(value), 'f');
    } else if (value == Py_None) {
      shape_ += 'N';
    } else if (PyLong_CheckExact(value)) {
      add_integer(value);
    } else if (is_text(value)) {
      add_text_or_bytes(value);
    } else if (is_programs(value)) {
      add_programs(value);
    } else if (PyObject* const self = bound_to(value)) {
      add_method(value, self);
    } else if (depth == 0 || (!add_container(value, depth) && !add_array(value))) {
      add_object(value);
    }
  }

  /// Those of a tuple or list.
  template <typename NameOf>
  void add_items(PyObject* sequence, int depth, NameOf&& name_of) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
      add_part(
          sequence, [i] { return py::int_(i); }, PySequence_Fast_GET_ITEM(sequence, i), depth - 1,
          [&] { return name_of(i); });
    }
  }
  void add_keyword(PyObject* keywords, const std::string& name, PyObject* key, PyObject* value) {
    shape_ += name + "=";
    add_part(
        keywords, [key] { return borrowed(key); }, value, kMostDepth, [&] { return name; });
  }

  void add_text(std::string_view text) { shape_ += text; }
  std::string take_shape() { return std::move(shape_); }

 private:
  bool has_names() const { return how_.names != nullptr; }

  template <typename T>
  void leaf(T&& value, char kind) {
    arguments_.leaves.emplace_back(std::forward<T>(value));
    if (has_names()) arguments_.names.push_back(name_);
    shape_ += kind;
  }

  /// Goes on with what stands under a key, as `key_of` gives it, in a part of the value, or in the
  /// call; `name_of` gives its name, after that of the value.
  template <typename Key, typename Name>
  void add_part(PyObject* holder, Key&& key_of, PyObject* value, int depth, Name&& name_of) {
    if (!has_names()) return add(value, depth);
    if (is_plain_number(value)) {
      arguments_.numbers.push_back({arguments_.leaves.size(), holder, key_of()});
    }
    const std::size_t length = name_.size();
    name_ += name_of();
    add(value, depth);
    name_.resize(length);
  }

  /// What autograd does with a tensor besides, which no op shows.
  void add_burden(const at::Tensor& tensor) {
    if (torch::autograd::impl::get_autograd_meta(tensor) == nullptr) return;
    const bool has_hooks = !torch::autograd::impl::hooks(tensor).empty() ||
                           torch::autograd::impl::post_acc_grad_hooks(tensor) != nullptr;
    const bool has_tangent = tensor._fw_grad(0).defined();
    if (tensor.requires_grad() && !tensor.is_leaf()) {
      shape_ += tensor.retains_grad() ? 'r' : 'l';
      add_sized(tensor.grad_fn()->name());
    }
    if (!has_hooks && !has_tangent) return;
    shape_ += has_tangent ? 'T' : 'H';
    arguments_.holds_opaque = true;
    arguments_.opaque =
        has_tangent ? "tensor with a tangent (forward-mode differentiation)" : "tensor with hooks";
  }

  /// Which attributes of its own the tensor has.
  void add_names(PyObject* tensor) {
    PyObject** dict = _PyObject_GetDictPtr(tensor);
    if (dict == nullptr || *dict == nullptr || PyDict_GET_SIZE(*dict) == 0) return;
    shape_ += '.';
    for (const auto& [key, value] : entries_of(*dict)) add_key(key);
  }

  /// Whether that is all that is said of a value, as no recorded call has looked at it.
  bool leaves_out(PyObject* value, bool is_value) {
    if (how_.unread == nullptr) return false;
    arguments_.singles.push_back({value, is_value, has_names() ? name_ : std::string()});
    if (how_.unread->is_compared(count_singles_++, is_value)) return false;
    shape_ += 'u';
    add_address(Py_TYPE(value));
    return true;
  }

  void add_text_or_bytes(PyObject* value) {
    if (leaves_out(value, true)) return;
    const bool is_bytes = PyBytes_Check(value);
    leaf(text_of(is_bytes ? py::repr(value).ptr() : value), is_bytes ? 'B' : 's');
  }

  void add_integer(PyObject* value) {
    if (const auto number = int64_of(value)) {
      leaf(*number, 'i');
    } else {
      add_sized(text_of(py::repr(value).ptr()));
    }
  }

  bool add_container(PyObject* value, int depth) {
    if ((PyTuple_Check(value) && !THPSize_Check(value)) || PyList_CheckExact(value)) {
      if (PyList_CheckExact(value) && was_met(value)) return true;
      shape_ += PyList_CheckExact(value) ? '[' : '(';
      if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) add_subclass(value);
      add_items(value, depth, [](Py_ssize_t i) { return "[" + std::to_string(i) + "]"; });
      shape_ += ')';
      return true;
    }
    if (PyDict_Check(value)) {
      if (was_met(value)) return true;
      if (!PyDict_CheckExact(value)) add_subclass(value);
      const std::size_t first = arguments_.numbers.size();
      add_dict(value, PyDict_CheckExact(value) ? nullptr : Py_TYPE(value), depth,
               [](PyObject* key) { return "[" + shown(key) + "]"; });
      if (!PyDict_CheckExact(value)) add_numbers_of_attributes(value, first);
      return true;
    }
    if (PySlice_Check(value)) {
      const auto* slice = reinterpret_cast<PySliceObject*>(value);
      shape_ += ':';
      for (PyObject* end : {slice->start, slice->stop, slice->step}) add(end, depth - 1);
      return true;
    }
    if (PyAnySet_CheckExact(value)) {
      if (PySet_Check(value) && was_met(value)) return true;
      // in the order in which code that goes over it meets them
      shape_ += PySet_Check(value) ? 'S' : 'Z';
      const auto items = py::reinterpret_steal<py::list>(PySequence_List(value));
      for (const py::handle& item : items) add_key(item.ptr());
      shape_ += ')';
      return true;
    }
    if (is_scalar_of_numpy(value)) return add_scalar_of_numpy(value);
    if (PyRange_Check(value) || THPDevice_Check(value) || THPSize_Check(value)) {
      shape_ += 'v';
      add_sized(text_of(py::repr(value).ptr()));
      return true;
    }
    if (is_plain_object(value)) {
      if (was_met(value)) return true;
      const bool is_outermost = object_ == nullptr;
      if (is_outermost) {
        object_ = value;
        name_of_object_ = name_;
      }
      add_dict(dict_of(value), Py_TYPE(value), depth,
               [](PyObject* key) { return "." + text_of(key); });
      if (is_outermost) object_ = nullptr;
      return true;
    }
    return false;
  }

  /// What is written in one place shows in the other: which one it is belongs to the structure. A
  /// tree whose nodes know their parent ends here, too.
  bool was_met(PyObject* value) {
    const auto [met, is_new] = met_.emplace(value, met_.size());
    if (is_new) arguments_.containers.push_back(value);
    if (is_new && has_names()) arguments_.names_of_containers.push_back(name_);
    if (!is_new) shape_ += "@" + std::to_string(met->second) + " ";
    return !is_new;
  }

  /// False for one that is too large.
  bool add_scalar_of_numpy(PyObject* value) {
    const py::object bytes = bytes_of_array(value);
    if (!bytes) return false;
    if (leaves_out(value, true)) return true;
    shape_ += 'y';
    add_address(Py_TYPE(value));
    add_sized(text_of(py::repr(value).ptr()));
    // what the words leave out: which NaN it is, a zero at the end of a text, the middle of many
    const auto kind = py::cast<std::string>(borrowed(value).attr("dtype").attr("kind"));
    const bool is_integer = kind == "i" || kind == "u" || kind == "b";
    if (!is_integer) add_sized(text_of(bytes.attr("hex")().ptr()));
    return true;
  }

  /// False for what no tensor can lie over: texts, objects, another order of bytes or of items.
  bool add_array(PyObject* value) {
    if (!is_array_of_numpy(value) || has_notes(value)) return false;
    at::Tensor tensor;
    try {
      if (how_.arrays == Arrays::kAsTensors)
        tensor = torch::utils::tensor_from_numpy(value, /*warn_if_not_writeable=*/false);
    } catch (const std::exception&) {
      PyErr_Clear();
      return false;
    }
    arguments_.arrays.push_back({arguments_.leaves.size(), value, tensor});
    leaf(std::move(tensor), 'n');
    // dtypes of one size and kind are one to torch
    shape_ += text_of(borrowed(value).attr("dtype").attr("char").ptr());
    return true;
  }

  template <typename NameOf>
  void add_dict(PyObject* dict, PyTypeObject* type, int depth, NameOf&& name_of) {
    shape_ += '{';
    if (type != nullptr) add_address(type);
    for (const auto& entry : entries_of(dict)) {
      PyObject* key = entry.first;  // a binding cannot be captured
      PyObject* value = entry.second;
      add_key(key);
      add_part(
          dict, [&] { return borrowed(key); }, value, depth - 1, [&] { return name_of(key); });
    }
    shape_ += '}';
  }

  /// No two keys give one text.
  void add_key(PyObject* key) {
    if (PyUnicode_CheckExact(key)) {
      shape_ += 's';
      add_sized(text_of(key));
    } else if (PyLong_CheckExact(key) || PyFloat_CheckExact(key) || PyBool_Check(key) ||
               key == Py_None || PyBytes_CheckExact(key)) {
      shape_ += 'k';
      const bool is_nan = PyFloat_CheckExact(key) && std::isnan(PyFloat_AS_DOUBLE(key));
      // which NaN it is
      add_sized(is_nan ? std::to_string(std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(key)))
                       : text_of(py::repr(key).ptr()));
    } else if (PyTuple_CheckExact(key)) {
      shape_ += '<';
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) add_key(PyTuple_GET_ITEM(key, i));
      shape_ += '>';
    } else {
      if (!is_fixed(key) && object_ != nullptr) set_unguarded(key);
      arguments_.holds_opaque |= !is_fixed(key) && object_ == nullptr;
      add_object(key);
    }
  }

  /// A container of a class of its own, which may hold more than items.
  void add_subclass(PyObject* value) {
    add_address(Py_TYPE(value));
    if (has_slots(Py_TYPE(value))) set_unguarded(value);
    for (const auto& [name, held] : attributes_of(value)) {
      const bool is_item = mirrors_entry(value, name, held);
      if (!is_item) set_unguarded(value);
      shape_ += is_item ? '.' : '!';
      add_key(name);
    }
    if (!PyDict_Check(value)) return;
    if (const py::object factory = factory_of(value)) add_object(factory.ptr());
  }

  /// Entries of a dict that are its attributes, too, of the numbers from `first` on.
  void add_numbers_of_attributes(PyObject* value, std::size_t first) {
    PyObject* dict = dict_of(value);
    if (dict == nullptr || dict == value) return;
    for (std::size_t k = arguments_.numbers.size(); k-- > first;) {
      const auto [leaf, holder, key] = arguments_.numbers[k];
      if (holder == value && find_entry(dict, key.ptr()) != nullptr)
        arguments_.numbers.push_back({leaf, dict, key});
    }
  }

  void add_sized(const std::string& text) {
    shape_ += std::to_string(text.size());
    shape_ += ':';
    shape_ += text;
  }

  /// Each call makes another one (`meter.update`): it is which function it is, and of which object.
  void add_method(PyObject* method, PyObject* self) {
    shape_ += 'm';
    if (PyMethod_Check(method)) {
      add_object(PyMethod_GET_FUNCTION(method));
    } else {
      add_address(reinterpret_cast<PyCFunctionObject*>(method)->m_ml);
    }
    if (is_fixed(self)) return add_object(self);
    if (!is_programs(self)) {
      const std::size_t length = name_.size();
      name_ += ".__self__";
      set_unguarded(self);
      name_.resize(length);
    }
    add_programs(self);
  }

  /// Whether it counts as an object of the program's, known by which it is.
  bool is_programs(PyObject* value) const {
    return how_.changed != nullptr && how_.changed->find(value) != nullptr;
  }
  void add_programs(PyObject* value) {
    shape_ += 'O';
    add_address(value);
  }

  void set_unguarded(PyObject* value) {
    arguments_.opaque = type_name(value);
    if (has_names()) arguments_.opaque_name = name_;
    PyObject* const whole = object_ == nullptr ? value : object_;
    if (arguments_.unguarded.empty() || arguments_.unguarded.back().first != whole)
      arguments_.unguarded.emplace_back(whole, object_ == nullptr ? name_ : name_of_object_);
  }

  void add_object(PyObject* value) {
    if (!is_fixed(value)) {
      if (!is_array_of_numpy(value) && leaves_out(value, false)) return;
      set_unguarded(value);
    }
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
  const Flatten& how_;
  std::size_t count_singles_ = 0;
  std::string name_;  ///< of what is added
  /// The outermost object with attributes that what is added stands in, such as a trainer; null for
  /// none.
  PyObject* object_ = nullptr;
  std::string name_of_object_;
  std::string shape_ = Arguments::kStructure;
  ska::flat_hash_map<PyObject*, std::size_t> met_;  ///< what can be written, in the order met
};

}  // namespace

py::object ChangedArguments::add(Roots& roots, PyObject* object, const std::string& name) {
  // recordings and plans tell them apart by what they are called
  std::vector<std::string> taken;
  for (const auto& [other, changed] : all_) taken.push_back(changed.name);
  all_.try_emplace(object, Changed{Root::pinned(roots, object), free_name(name, taken)});
  order_.push_back(object);
  if (order_.size() <= kMost) return {};
  py::object dropped = borrowed(order_.front());
  all_.erase(order_.front());
  order_.pop_front();
  return dropped;
}

Arguments flatten(PyObject* positional, PyObject* keywords, Order order, const Flatten& how) {
  Arguments arguments;
  Flattening flattening(arguments, how);
  flattening.add_items(positional, kMostDepth + 1, [parameters = how.names](Py_ssize_t i) {
    const auto k = static_cast<std::size_t>(i);
    return k < parameters->size() ? (*parameters)[k] : "args[" + std::to_string(i) + "]";
  });
  struct Named {
    std::string name;
    PyObject* keyword;
    PyObject* value;
  };
  std::vector<Named> named;
  for (const auto [key, value] : Entries(keywords)) {
    named.push_back({text_of(key), key, value});
  }
  if (order == Order::kAny) std::ranges::sort(named, {}, &Named::name);
  for (const Named& argument : named) {
    flattening.add_keyword(keywords, argument.name, argument.keyword, argument.value);
  }
  arguments.leaves.emplace_back(flattening.take_shape());
  return arguments;
}

Arguments flatten(std::span<const py::object> values, const Flatten& how) {
  Arguments arguments;
  Flattening flattening(arguments, how);
  std::size_t k = 0;
  for (const py::object& value : values) {
    if (how.names != nullptr) flattening.set_name((*how.names)[k++]);
    value ? flattening.add(value.ptr()) : flattening.add_text("M");
  }
  arguments.leaves.emplace_back(flattening.take_shape());
  return arguments;
}

Arguments flatten(const py::object& held, const std::string& name) {
  const std::vector<std::string> names = {name};
  return flatten(std::span(&held, 1), {.arrays = Arrays::kByIdentity, .names = &names});
}

bool may_be_argument(PyObject* value, bool is_new) {
  if (value == nullptr || is_part_of_model(value)) return false;
  const auto held = borrowed(value);
  const Arguments arguments = flatten(std::span(&held, 1));
  if (!arguments.opaque.empty() || arguments.has_subclass) return false;
  const bool is_container = PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value);
  PyObject* const items = !is_container && is_plain_object(value) ? dict_of(value) : value;
  bool has_any = is_new && (is_container || items != value) && items != nullptr &&
                 size_of(items) <= Plain::kMostItems;
  for (const pack::Leaf& leaf : arguments.leaves) {
    const auto* tensor = std::get_if<at::Tensor>(&leaf);
    if (tensor == nullptr) continue;
    has_any = true;
    if (tensor->requires_grad() && tensor->is_leaf()) return false;
  }
  return has_any;
}

void UnreadArguments::take(const py::dict& values) {
  values_.clear();
  if (PyDict_Update(values_.ptr(), values.ptr()) != 0) throw py::error_already_set();
}

void UnreadArguments::begin(const std::vector<Arguments::Single>& given) {
  if (!leaves_out_values_) return;
  values_.clear();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_value) values_[py::int_(i)] = borrowed(given[i].object);
  }
}

bool UnreadArguments::settle(const std::vector<Arguments::Single>& given,
                             const std::function<bool(PyObject*)>& was_read) {
  bool is_as_before = true;
  bool has_other = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& [object, is_value, name] = given[i];
    if (was_read(object)) {
      if (!is_value) is_as_before &= !read_.insert(i).second;
    } else if (is_value && i < newest_.size() && newest_[i]) {
      has_other |= !newest_[i].equal(borrowed(object));
    }
  }
  leaves_out_values_ |= has_other;
  newest_.clear();
  if (!leaves_out_values_) {
    for (const Arguments::Single& single : given)
      newest_.push_back(single.is_value ? borrowed(single.object) : py::object());
  }
  return is_as_before && !has_other;
}

bool same(const Arguments& before, const Arguments& after) {
  if (before.singles != after.singles) return false;
  const bool has_same_arrays = std::ranges::equal(
      before.arrays, after.arrays,
      [](const auto& a, const auto& b) { return a.leaf == b.leaf && a.array == b.array; });
  if (!has_same_arrays) return false;
  const auto is_array = [&before](const pack::Leaf& leaf) {
    const auto position = static_cast<std::size_t>(&leaf - before.leaves.data());
    return std::ranges::find(before.arrays, position, &Arguments::Array::leaf) !=
           before.arrays.end();
  };
  return std::ranges::equal(before.leaves, after.leaves, [&](const auto& a, const auto& b) {
    if (a.index() != b.index()) return false;
    const auto is_same = [&]<typename T>(const T& value) {
      const T& other = std::get<T>(b);
      if constexpr (std::is_same_v<T, at::Tensor>) {
        return is_array(a) || value.is_same(other);
      } else if constexpr (std::is_same_v<T, double>) {
        return std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other);
      } else {
        return value == other;
      }
    };
    return std::visit(is_same, a);
  });
}

}  // namespace steptape::python
