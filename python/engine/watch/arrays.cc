#include <ATen/ops/as_strided.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/tensor_numpy.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "python/engine/watch/watcher.h"
#include "recorder/frontend_hints.h"

/// Arrays of NumPy that a step is given, such as the indices of a batch: tensors to a plan. What
/// the host reads of one, no guard could hold other calls to.
namespace steptape::python::watch {
namespace {

/// Geometry and dtype are those of the tensor, which are guarded.
constexpr std::string_view kGeometry = "shape dtype ndim size itemsize nbytes strides";
/// Methods that give items as Python's numbers.
constexpr std::string_view kGivesNumbers = "item tolist";
/// Functions that do not look at items.
constexpr std::string_view kHandsOff = "isinstance len type callable";

/// Methods of lists and deques that keep what they are given as it is.
constexpr std::string_view kAdds = "append appendleft insert";
/// Methods of dicts that look at keys alone.
constexpr std::string_view kOfDicts =
    "clear copy get items keys pop popitem setdefault update values __getitem__ __setitem__";

bool may_index(const at::Tensor& tensor) {
  // torch takes more dimensions for a sequence of indices
  return tensor.dim() == 1 &&
         (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kBool);
}

/// The dict itself, or the one that a view of values or items is of.
PyObject* dict_behind(PyObject* value) {
  if (PyDict_Check(value)) return value;
  const bool is_view = Py_TYPE(value) == &PyDictValues_Type || Py_TYPE(value) == &PyDictItems_Type;
  std::vector<PyObject*> held;
  if (is_view) add_held(value, held);
  return held.empty() ? nullptr : held.front();
}

std::string_view name_of_builtin(PyObject* callee) {
  return reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name;
}

/// Of a method that a class of C's has, not bound to an object.
std::string_view name_of_method(PyObject* callee) {
  return reinterpret_cast<PyMethodDescrObject*>(callee)->d_method->ml_name;
}

/// Whether a call is of a method of C's of a list, a deque or a dict that looks at none of what is
/// in it, and keeps what it is given as it is.
bool hands_items_on(const Instruction& in) {
  const bool is_bound = PyCFunction_Check(in.callee);
  if (!is_bound && (Py_TYPE(in.callee) != &PyMethodDescr_Type || in.arguments == nullptr))
    return false;
  PyObject* const self = is_bound ? PyCFunction_GET_SELF(in.callee) : in.arguments[0];
  if (self == nullptr) return false;
  const std::string_view methods = PyDict_Check(self)                     ? kOfDicts
                                   : PyList_Check(self) || is_deque(self) ? kAdds
                                                                          : "";
  return is_one_of(is_bound ? name_of_builtin(in.callee) : name_of_method(in.callee), methods);
}

/// Whether a call makes a list, tuple or dict of keywords and what stands in another one.
bool makes_container(const Instruction& in) {
  constexpr std::array kTypes = {&PyList_Type, &PyTuple_Type, &PyDict_Type, &PyODict_Type};
  const bool is_one = std::ranges::find(kTypes, as_type(in.callee)) != kTypes.end();
  if (!is_one || in.spread != nullptr || in.arguments == nullptr) return false;
  const Py_ssize_t named = in.keywords == nullptr ? 0 : PyTuple_GET_SIZE(in.keywords);
  return std::all_of(in.arguments, in.arguments + in.count - named, [](PyObject* from) {
    return PyDict_Check(from) || PyList_Check(from) || PyTuple_Check(from);
  });
}

/// Whether NumPy takes a number of Python's for one of the array's dtype (NEP 50: from 2.0 on).
bool are_numbers_weak() {
  static const bool are =
      !py::cast<std::string>(module_named("numpy").attr("__version__")).starts_with("1.");
  return are;
}

}  // namespace

void Watcher::give_array(PyObject* array, at::Tensor tensor) {
  if (!tensor.defined()) return refuse_array();
  if (arrays_.emplace(array, std::move(tensor)).second) held_.push_back(borrowed(array));
}

bool Watcher::is_given_array(PyObject* value, int depth) const {
  if (value == nullptr) return false;
  if (arrays_.contains(value)) return true;
  if (depth == 0) return false;
  if (PyObject* dict = dict_behind(value)) {
    for (const auto& [key, item] : entries_of(dict)) {
      if (is_given_array(item, depth - 1)) return true;
    }
    return false;
  }
  if (PyCFunction_Check(value)) return is_given_array(PyCFunction_GET_SELF(value), 0);
  if (!PyTuple_Check(value) && !PyList_Check(value)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
    if (is_given_array(PySequence_Fast_GET_ITEM(value, i), depth - 1)) return true;
  }
  return false;
}

void Watcher::refuse_array() {
  refuse(
      "the host reads an array of NumPy that the step is given, or makes of a tensor, which is "
      "another one in each call; compute with tensors, which torch.as_tensor() and "
      "torch.from_numpy() make of an array, or read its numbers with item() or tolist()",
      RefusalCode::kHostRead);
}

void Watcher::ask_for_array() {
  if (newest_callee_ != nullptr && !calls_c(newest_callee_)) return;  // by its name
  const bool is_function = newest_callee_ != nullptr && PyCFunction_Check(newest_callee_);
  const std::string_view name = is_function ? name_of_builtin(newest_callee_) : "";
  const bool gives_it = (name == "asarray" || name == "asanyarray") &&
                        newest_argument_ != nullptr && is_tensor(newest_argument_);
  if (gives_it) return;
  refuse("NumPy copies a tensor" + (name.empty() ? "" : " (`" + std::string(name) + "`)") +
             ", and what the host makes of that leaves no op; compute with tensors, or read single "
             "numbers with item()",
         RefusalCode::kHostRead);
}

bool Watcher::look_at_arrays(const Instruction& in) {
  switch (in.operation) {
    case Operation::kLoadItem:
    case Operation::kStoreItem:
      if (is_given_array(in.third) && !keeps_items(in.first)) refuse_array();
      if (is_tensor(in.first)) return false;  // an op like another
      if (!is_given_array(in.first) && !is_given_array(in.second)) return false;
      if (in.operation == Operation::kLoadItem && PySlice_Check(in.second)) {
        FollowedNumbers::current().escape(in.second);
        awaited_.back().array = in.first;
        return true;
      }
      break;
    case Operation::kLoadAttribute: {
      if (!is_given_array(in.first)) return false;
      const char* name = PyUnicode_AsUTF8(in.name);
      if (name == nullptr || !(is_one_of(name, kGeometry) || is_one_of(name, kGivesNumbers))) break;
      return true;
    }
    case Operation::kCall:
      return call_with_arrays(in);
    case Operation::kContains: {
      const bool asks_keys = PyDict_Check(in.first) != 0;
      if (!is_given_array(in.second, 4) && (asks_keys || !is_given_array(in.first, 4)))
        return false;
      break;
    }
    case Operation::kCompare:
      if (compare_array(in)) return true;
      [[fallthrough]];
    case Operation::kBinary:
    case Operation::kFormat:
      if (!is_given_array(in.first, 4) && !is_given_array(in.second, 4)) return false;
      break;
    case Operation::kIdentity:
    case Operation::kUnary:
    case Operation::kTest:
    case Operation::kIterate:
    case Operation::kSpread:
    case Operation::kDeleteItem:
      if (!is_given_array(in.first) && !is_given_array(in.second)) return false;
      break;
    default:
      return false;
  }
  refuse_array();
  return true;
}

bool Watcher::compare_array(const Instruction& in) {
  constexpr double kMost = 1e30;  // further out NumPy compares in other ways
  const bool is_first = arrays_.contains(in.first);
  const auto found = arrays_.find(is_first ? in.first : in.second);
  PyObject* const other = is_first ? in.second : in.first;
  if (found == arrays_.end() || found->second.dim() != 0 || in.made == Operator::kOther ||
      !PyFloat_CheckExact(other) || is_followed(other) ||
      !(std::abs(PyFloat_AS_DOUBLE(other)) < kMost))
    return false;
  const at::Tensor& tensor = found->second;
  const bool is_single = tensor.scalar_type() == at::kFloat;
  if (!is_single && tensor.scalar_type() != at::kDouble) return false;
  recorder::FrontendHints* const hints = recorder::FrontendHints::current();
  if (hints == nullptr) return false;
  double constant = PyFloat_AS_DOUBLE(other);
  if (is_single && are_numbers_weak()) constant = static_cast<float>(constant);
  const py::float_ read(tensor.item<double>());
  const std::string op = "ops[" + std::to_string(hints->newest_read()) + "]";
  hints->said.followed_reads.insert(hints->newest_read());
  const trace::Formula of_read = trace::leaf(hints->leaf(trace::LeafKind::kHostRead, op));
  const trace::Formula of_other = trace::constant(constant);
  const py::float_ beside(constant);
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (is_first) {
    numbers.compare(in.made, read.ptr(), beside.ptr(), of_read, of_other);
  } else {
    numbers.compare(in.made, beside.ptr(), read.ptr(), of_other, of_read);
  }
  return true;
}

const at::Tensor* Watcher::array_read_by(const Instruction& in) const {
  const Py_ssize_t count = in.arguments == nullptr ? -1 : in.count;
  PyObject* array = nullptr;
  if (in.spread != nullptr || in.keywords != nullptr) return nullptr;
  if (PyCFunction_Check(in.callee)) {
    if (count <= 0 && is_one_of(name_of_builtin(in.callee), kGivesNumbers))
      array = PyCFunction_GET_SELF(in.callee);
  } else if (count == 1) {
    const bool is_method = Py_TYPE(in.callee) == &PyMethodDescr_Type;
    const bool gives =
        is_method ? is_one_of(name_of_method(in.callee), kGivesNumbers)
                  : as_type(in.callee) == &PyFloat_Type || as_type(in.callee) == &PyLong_Type;
    if (gives) array = in.arguments[0];
  }
  const auto found = arrays_.find(array);
  if (found == arrays_.end() || !is_short(found->second)) return nullptr;
  // any other number would become one
  const at::ScalarType type = found->second.scalar_type();
  const bool is_of_type = as_type(in.callee) == &PyFloat_Type ? at::isFloatingType(type)
                                                              : at::isIntegralType(type, false);
  return is_of_type || PyType_Check(in.callee) == 0 ? &found->second : nullptr;
}

bool Watcher::call_with_arrays(const Instruction& in) {
  PyObject* callee = in.callee;
  const bool is_builtin = callee != nullptr && PyCFunction_Check(callee);
  const bool is_method = is_builtin && is_given_array(PyCFunction_GET_SELF(callee));
  bool is_given = is_method || is_given_array(in.spread, 4);
  for (Py_ssize_t i = 0; in.arguments != nullptr && i < in.count; ++i) {
    is_given |= is_given_array(in.arguments[i], 4);
  }
  if (!is_given || callee == nullptr) return false;
  if (const at::Tensor* const read = array_read_by(in)) {
    awaited_.back().listed = object_of(*read);
    return true;
  }
  if (arrays_.contains(in.spread)) {  // item by item, whoever is called with them
    refuse_array();
    return true;
  }
  // code of Python's shows what it does with it
  if (PyFunction_Check(callee) || PyMethod_Check(callee)) return false;
  if (PyType_Check(callee) && (as_type(callee)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
      !PyType_IsSubtype(as_type(callee), &PyTuple_Type) &&
      as_type(callee)->tp_new == PyBaseObject_Type.tp_new) {
    return false;
  }
  if (hands_items_on(in) || makes_container(in)) return false;  // as with any object
  if (is_builtin && !is_method) {
    const std::string_view name = name_of_builtin(callee);
    if (is_one_of(name, kHandsOff)) return true;
    const bool takes_one = in.arguments != nullptr && in.count == 1 && in.keywords == nullptr &&
                           is_given_array(in.arguments[0]);
    const bool aliases = name == "from_numpy" || name == "as_tensor";
    if (takes_one && (aliases || name == "tensor")) {
      awaited_.back().array = in.arguments[0];
      awaited_.back().made = aliases ? Awaited::Made::kAlias : Awaited::Made::kCopy;
      leave_out_ops(true);  // of the tensor in whose place another comes
      return true;
    }
  } else if (callee == reinterpret_cast<PyObject*>(&PyType_Type)) {
    return true;
  }
  refuse_array();
  return true;
}

bool Watcher::put_tensors(const Instruction& in) {
  const bool is_item =
      in.operation == Operation::kLoadItem || in.operation == Operation::kStoreItem;
  if (arrays_.empty() || !is_item || !is_tensor(in.first)) return false;
  if (!is_given_array(in.second, 1)) return false;
  const bool is_tuple = PyTuple_CheckExact(in.second);
  bool all_may = in.second_at != nullptr && (is_tuple || arrays_.contains(in.second));
  const auto tensor_for = [&](PyObject* value) {
    const auto found = arrays_.find(value);
    if (found == arrays_.end()) return borrowed(value);
    all_may &= may_index(found->second);
    return object_of(found->second);
  };
  py::object index;
  if (is_tuple) {
    py::tuple made(static_cast<std::size_t>(PyTuple_GET_SIZE(in.second)));
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = tensor_for(PyTuple_GET_ITEM(in.second, static_cast<Py_ssize_t>(i)));
    }
    index = std::move(made);
  } else {
    index = tensor_for(in.second);
  }
  if (!all_may) {
    refuse_array();
    return false;
  }
  Py_DECREF(std::exchange(*in.second_at, index.release().ptr()));
  return true;
}

void Watcher::leave_out_ops(bool are_left_out) {
  if (recorder::FrontendHints* hints = recorder::FrontendHints::current())
    hints->leave_out(are_left_out);
}

void Watcher::take_array(const Awaited& awaited, PyObject** result) {
  const auto found = arrays_.find(awaited.array);
  if (found == arrays_.end()) return;
  const at::Tensor whole = found->second;
  try {
    at::Tensor made;
    switch (awaited.made) {
      case Awaited::Made::kSlice: {
        const at::Tensor slice = [&] {
          leave_out_ops(true);
          const auto all_count = c10::make_scope_exit([] { leave_out_ops(false); });
          return torch::utils::tensor_from_numpy(*result, false);
        }();
        const auto bytes = static_cast<const char*>(slice.const_data_ptr()) -
                           static_cast<const char*>(whole.const_data_ptr());
        made = slice.numel() == 0
                   ? whole.narrow(0, 0, 0)
                   : whole.as_strided(slice.sizes(), slice.strides(),
                                      whole.storage_offset() + bytes / slice.element_size());
        give_array(*result, std::move(made));
        return;
      }
      case Awaited::Made::kAlias:
        made = whole.detach();
        break;
      case Awaited::Made::kCopy:
        made = whole.clone(at::MemoryFormat::Contiguous);
        break;
    }
    Py_DECREF(std::exchange(*result, object_of(made).release().ptr()));
  } catch (const std::exception&) {
    PyErr_Clear();
    refuse_array();
  }
}

}  // namespace steptape::python::watch
