#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "python/engine/structure.h"
#include "python/engine/watch/watcher.h"
#include "recorder/context/graphs.h"
#include "recorder/frontend_hints.h"

/// Numbers that go into ops and come out of them. An op takes the bare number: which one it was is
/// told to the recorder before each function of torch's that is written in C, wherever it is
/// called. No mode of torch's is used for that, as torch's own code runs another way under one.
namespace steptape::python::watch {
namespace {

/// They give the program a number of a tensor; of other functions what they read is their own.
constexpr std::string_view kGive =
    "__bool__ __float__ __int__ __index__ __complex__ __contains__ tolist is_nonzero equal "
    "allclose nonzero_static";

struct Outlet {
  std::string_view methods;
  RefusalCode code;
  std::string_view what;
};
/// Methods of tensors that give the host values or memory, and leave no op.
constexpr std::array kOutlets = {
    Outlet{"tolist", RefusalCode::kHostRead,
           "gives the host values of a tensor, which leaves no op"},
    Outlet{"data_ptr untyped_storage _to_dlpack _to_dlpack_versioned", RefusalCode::kWrittenOutside,
           "gives the host the memory of a tensor"},
    Outlet{"apply_ map_ map2_", RefusalCode::kWrittenOutside,
           "calls Python for each item, which leaves no op"},
    Outlet{"is_set_to _is_alias_of _overlaps", RefusalCode::kHostRead,
           "asks where tensors lie, which leaves no op"},
};

/// They make tensors of what the host holds.
constexpr std::string_view kMakers =
    "tensor as_tensor from_numpy asarray frombuffer new_tensor new";

/// Whether what they are given is copied, whatever memory it lies in.
bool are_items(std::span<PyObject* const> arguments) {
  return std::ranges::any_of(
      arguments, [](PyObject* each) { return PyList_Check(each) || PyTuple_Check(each); });
}

struct Pointed {
  std::string_view function;
  std::size_t first, count;
};
/// Composite functions that look at these of their tensors, sizes or indices, by pointer.
constexpr std::array<Pointed, 7> kPointed = {{
    {"lstm", 1, 1},
    {"gru", 1, 1},
    {"rnn_tanh", 1, 1},
    {"rnn_relu", 1, 1},
    {"_pad_packed_sequence", 1, 1},
    {"tensor_split", 1, 1},
    {"ctc_loss", 2, 2},
}};

/// Functions of C's that torch's code calls with numbers, and that look at none.
constexpr std::string_view kPassOn =
    "apply isinstance issubclass getattr setattr hasattr __setattr__ __instancecheck__ append "
    "extend update get items cast type super callable len id _record_function_enter_new";

/// The same of Python's own library: of typing, of inspect for autograd.Function.apply, and of
/// contextlib for functions that `contextmanager` decorates.
constexpr std::string_view kHandsThrough = "cast bind apply_defaults helper";

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

/// What a tensor is indexed with, one by one: ints, the bounds of slices, which are null where
/// there is none, and others.
std::vector<PyObject*> parts_of_index(PyObject* index) {
  std::vector<PyObject*> parts;
  const auto add = [&parts](PyObject* item) {
    if (!PySlice_Check(item)) return parts.push_back(item);
    const auto* slice = reinterpret_cast<PySliceObject*>(item);
    for (PyObject* bound : {slice->start, slice->stop, slice->step})
      parts.push_back(bound == Py_None ? nullptr : bound);
  };
  if (index != nullptr && PyTuple_Check(index)) {
    std::for_each_n(PySequence_Fast_ITEMS(index), PyTuple_GET_SIZE(index), add);
  } else if (index != nullptr) {
    add(index);
  }
  return parts;
}

/// Whether nothing else that ops are given for this index is the same number: then it is known
/// where it stands among their arguments.
bool is_told_apart(PyObject* part, PyObject* index) {
  if (part == nullptr || !PyLong_CheckExact(part)) return part != nullptr;
  const FollowedNumbers& numbers = FollowedNumbers::current();
  const trace::Formula* formula = numbers.formula_of(part);
  if (formula == nullptr) return true;
  const auto is_equal = [&](PyObject* other) {
    if (other == part) return false;
    if (other == nullptr) return PyObject_IsTrue(part) == 0;  // a slice begins with 0
    const trace::Formula* own = numbers.formula_of(other);
    if (own != nullptr && *own == *formula) return false;
    return PyLong_Check(other) && PyObject_RichCompareBool(other, part, Py_EQ) == 1;
  };
  const std::vector<PyObject*> parts = parts_of_index(index);
  const auto slices = [part](PyObject* item) {  // by steps of as many
    return PySlice_Check(item) && reinterpret_cast<PySliceObject*>(item)->step == part;
  };
  const bool is_step =
      PyTuple_Check(index)
          ? std::any_of(PySequence_Fast_ITEMS(index),
                        PySequence_Fast_ITEMS(index) + PyTuple_GET_SIZE(index), slices)
          : slices(index);
  return !is_step && std::ranges::none_of(parts, is_equal);
}

/// Whether an instruction of torch's code neither does ops nor can come upon a followed number.
bool is_of_no_number(const Instruction& in) {
  const auto is_none = [](PyObject* value) {  // nor a tensor, nor what may hold one
    return value == nullptr || value == Py_None || PyUnicode_CheckExact(value) ||
           PyBool_Check(value) || PyType_Check(value);
  };
  const auto is_other = [](PyObject* value) { return value == nullptr || !is_number(value); };
  switch (in.operation) {
    case Operation::kBinary:
    case Operation::kCompare:
      return is_none(in.first) && is_none(in.second);
    case Operation::kUnary:
    case Operation::kFormat:
    case Operation::kGiveOut:
      return is_none(in.first);
    case Operation::kTest:
    case Operation::kLoadAttribute:
      return is_other(in.first);
    case Operation::kIdentity:
      return is_other(in.first) && is_other(in.second);
    case Operation::kLoadItem:
    case Operation::kDeleteItem:
      return is_none(in.second) && !is_tensor(in.first);
    case Operation::kStoreItem:
      return is_none(in.second) && !is_tensor(in.first) && keeps_items(in.first);
    case Operation::kContains:
      return is_none(in.second) && PyDict_Check(in.first);
    case Operation::kSpread:
      return !in.hashes;
    case Operation::kCall:
    case Operation::kHash:
    case Operation::kMatchKeys:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool keeps_items(PyObject* container) {
  if (PyList_Check(container) || PyDict_Check(container) || is_deque(container)) return true;
  if (is_tensor(container)) return true;  // an op
  PyObject* found = in_class(Py_TYPE(container), "__setitem__");
  return found == nullptr || Py_TYPE(found) != &PyWrapperDescr_Type;
}

bool Watcher::follow(const Instruction& in) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (numbers.is_empty()) return false;
  if (in.operation == Operation::kLoadItem && follow_item(in.first, in.second)) return true;
  switch (in.operation) {
    case Operation::kBinary:
    case Operation::kUnary:
      if (in.made == Operator::kPlus) return false;  // the number itself
      if (auto number = numbers.derive(in.made, in.first, in.second)) {
        if (!number->formula && follow_operator(in)) return true;
        awaited_.back().number = std::move(number);
        return true;
      }
      break;
    case Operation::kCompare:
      if (numbers.compare(in.made, in.first, in.second)) return false;
      break;
    case Operation::kTest:
      numbers.test(in.first);
      return false;
    case Operation::kStoreItem:
      if (!keeps_items(in.first)) numbers.escape(in.third);
      [[fallthrough]];
    case Operation::kLoadItem:
    case Operation::kDeleteItem:
    case Operation::kMatchKeys:
      if (!is_tensor(in.first)) numbers.escape(in.second);
      return false;
    case Operation::kLoadAttribute:
      // that of NumPy's numbers is called for what it gives
      if (numbers.contains(in.first) && view_of(in.name) != "round") numbers.escape(in.first);
      return false;
    case Operation::kContains:
      if (numbers.compare_each(Operator::kEqual, in.second, in.first)) return false;
      // what is compared is compared by code of C's
      numbers.escape(in.second);
      if (!PyDict_Check(in.first)) numbers.escape(in.first);
      return false;
    case Operation::kIdentity:
      if (numbers.contains(in.first)) numbers.escape(in.first);
      if (numbers.contains(in.second)) numbers.escape(in.second);
      return false;
    case Operation::kHash:
      for (Py_ssize_t i = 0; i < in.count; i += in.stride) numbers.escape(in.arguments[i]);
      return false;
    case Operation::kSpread:
      if (in.hashes) numbers.escape(in.first);
      return false;
    case Operation::kGiveOut:
    case Operation::kFormat:
      numbers.escape(in.first);
      return false;
    default:
      return false;
  }
  const auto are = [&in](PyTypeObject* type) {
    return Py_TYPE(in.first) == type && in.second != nullptr && Py_TYPE(in.second) == type;
  };
  // one container holds what two held
  const bool joins = in.made == Operator::kAdd && (are(&PyList_Type) || are(&PyTuple_Type));
  if (joins || (in.operation == Operation::kBinary && are(&PyDict_Type))) return false;
  // one container holds what another one held several times
  const auto is_sequence = [](PyObject* value) {
    return value != nullptr && (PyList_CheckExact(value) || PyTuple_CheckExact(value));
  };
  if (in.made == Operator::kMultiply && is_sequence(in.first) != is_sequence(in.second)) {
    numbers.escape(is_sequence(in.first) ? in.second : in.first);
    return false;
  }
  // what a tensor is given is told to the recorder
  if (is_tensor(in.first) || (in.second != nullptr && is_tensor(in.second))) return false;
  numbers.escape(in.first);
  numbers.escape(in.second);
  return false;
}

void Watcher::show_own(const Instruction& in) {
  if (in.second_at == nullptr) return;
  for (PyObject** at : {in.second_at - 1, in.second_at}) {
    py::object own = FollowedNumbers::current().plain(*at);
    Py_DECREF(std::exchange(*at, own.release().ptr()));
  }
}

bool Watcher::begin_ops(std::span<PyObject* const> values, Reads reads, std::string_view function) {
  return announce(FollowedNumbers::current().among(values), reads, function);
}

bool Watcher::announce(std::vector<recorder::FrontendHints::Number> numbers, Reads reads,
                       std::string_view function) {
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  if (hints == nullptr) return false;
  Awaited& awaited = awaited_.back();
  awaited.reads = reads;
  awaited.first_read = hints->reads();
  awaited.has_announced = !numbers.empty();
  if (awaited.has_announced) hints->announce(std::move(numbers), std::string(function));
  return true;
}

/// Of a tensor, at `index`; `value` is what is put there, or null.
bool Watcher::begin_item(PyObject* index, PyObject* value) {
  using Use = recorder::FrontendHints::Number::Use;
  std::vector<recorder::FrontendHints::Number> numbers;
  const auto add = [&numbers](PyObject* object, Use use) {
    for (recorder::FrontendHints::Number& number : FollowedNumbers::current().among({&object, 1})) {
      number.use = use;
      numbers.push_back(std::move(number));
    }
  };
  for (PyObject* part : parts_of_index(index)) {
    is_told_apart(part, index) ? add(part, Use::kIndex) : FollowedNumbers::current().escape(part);
  }
  if (value != nullptr) add(value, Use::kElement);
  return announce(std::move(numbers), Reads::kInternal);
}

void Watcher::end_ops(const Awaited& awaited, PyObject** result) {
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  if (hints == nullptr) return;
  if (awaited.has_announced) {
    // what entered no op has escaped: the function did something else with it
    FollowedNumbers::escape(hints->announced());
    hints->withdraw();
  }
  const bool is_tensor_there = result != nullptr && *result != nullptr && is_tensor(*result);
  if (is_tensor_there && tensor_of(*result).has_storage()) {
    const c10::Storage& storage = tensor_of(*result).storage();
    if (awaited.is_made) hints->note_made(storage);
    if (awaited.state_of != nullptr) {
      hints->note_state(storage);
      states_of_[storage.unsafeGetStorageImpl()] = awaited.state_of;
    }
  }
  if (hints->reads() == awaited.first_read) return;
  if (awaited.classes && hints->reads() == awaited.first_read + 2) return require_classes(awaited);
  if (awaited.reads == Reads::kInternal) hints->keep_internal(awaited.first_read);
  if (awaited.reads != Reads::kFollowed || result == nullptr || *result == nullptr) return;
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (numbers.contains(*result)) return;  // by a mode's own call of the function
  const trace::Formula leaf = newest_read();
  if (!awaited.tested.empty()) {
    if (FollowedNumbers::test_class(awaited.tested, leaf, *result == Py_True))
      hints->said.followed_reads.insert(hints->newest_read());
    return;
  }
  py::object followed = awaited.of_read
                            ? numbers.take(numbers.derive(*awaited.of_read, leaf), *result)
                            : numbers.follow(*result, leaf);
  // wherever it goes that nobody follows it escapes: one that goes nowhere may be any
  if (!followed || !is_followed(followed.ptr())) return;
  hints->said.followed_reads.insert(hints->newest_read());
  Py_DECREF(std::exchange(*result, followed.release().ptr()));
}

void Watcher::require_classes(const Awaited& awaited) {
  recorder::FrontendHints& hints = *recorder::FrontendHints::current();
  const auto label = [&](std::size_t position) {
    const trace::Index op = hints.read(awaited.first_read + position);
    hints.said.followed_reads.insert(op);
    return trace::leaf(hints.leaf(trace::LeafKind::kHostRead, "ops[" + std::to_string(op) + "]"));
  };
  FollowedNumbers::require_in_order(trace::constant(0), label(0));
  FollowedNumbers::require_in_order(label(1), trace::constant(*awaited.classes - 1));
}

/// Which nodes backward runs depends on where the graph of `roots`, a tuple of tensors, leads: of
/// one from before the step that may be elsewhere in the next call, and no op tells.
void Watcher::look_at_graph(PyObject* roots) {
  if (!PyTuple_Check(roots)) return;
  recorder::GraphWatch graphs;
  const auto is_before = [this](const torch::autograd::Node& node) {
    return node.thread_id() != at::RecordFunction::currentThreadId() ||
           node.sequence_nr() < first_node_;
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(roots); ++i) {
    PyObject* const root = PyTuple_GET_ITEM(roots, i);
    if (!is_tensor(root) || tensor_of(root).grad_fn() == nullptr) continue;
    if (!graphs.leads_out(*tensor_of(root).grad_fn(), is_before)) continue;
    refuse("backward meets a graph that was built before the step; detach what comes from it",
           RefusalCode::kUnconsumedGraph);
  }
}

bool Watcher::call_of_torch(PyObject* callee, std::string_view name,
                            std::span<PyObject* const> arguments) {
  // unbound, the tensor comes first
  const bool is_bound = PyCFunction_Check(callee);
  PyObject* const self = is_bound            ? PyCFunction_GET_SELF(callee)
                         : arguments.empty() ? nullptr
                                             : arguments.front();
  const bool is_method = self != nullptr && is_tensor(self);
  if (is_method && name == "tolist" && is_short(tensor_of(self))) {
    awaited_.back().listed = borrowed(self);
    return true;
  }
  if (self != nullptr && is_generator(self)) return call_of_generator(self, name, arguments);
  if (is_method || name.starts_with('_')) {  // those are functions of torch._C, too
    for (const Outlet& outlet : kOutlets) {
      if (is_one_of(name, outlet.methods))
        refuse("`" + std::string(name) + "` " + std::string(outlet.what), outlet.code);
    }
  }
  if (is_method && name == "numpy") {
    awaited_.back().gives_array = true;
    return true;
  }
  if (name == "run_backward" && !arguments.empty()) look_at_graph(arguments.front());
  // bound, the tensor is not among the arguments
  const bool is_apart = is_bound && is_method;
  const std::size_t first_argument = is_apart ? 0 : 1;
  const bool asks_for_offset = name == "storage_offset" || (name.starts_with("as_strided") &&
                                                            arguments.size() > 2 + first_argument);
  if (asks_for_offset && (is_apart || !arguments.empty()))
    look_where(is_apart ? PyCFunction_GET_SELF(callee) : arguments.front());
  const auto pointed = std::ranges::find(kPointed, name, &Pointed::function);
  if (pointed != kPointed.end()) {
    const std::size_t first = pointed->first + first_argument - 1;
    for (std::size_t i = first; i < std::min(first + pointed->count, arguments.size()); ++i) {
      const at::Tensor* tensor = is_tensor(arguments[i]) ? &tensor_of(arguments[i]) : nullptr;
      if (tensor != nullptr && c10::isIntegralType(tensor->scalar_type(), false))
        read_content(*tensor);
    }
  }
  const bool is_maker = is_one_of(name, kMakers);
  awaited_.back().is_made =
      name == "tensor" || name == "new_tensor" || (is_maker && are_items(arguments));
  if (is_maker && std::ranges::any_of(arguments, [](PyObject* a) { return is_memory(a); })) {
    refuse("`" + std::string(name) +
               "` makes a tensor of memory of the host, which may hold something else in the next "
               "step",
           RefusalCode::kHostTensorVaries);
  }
  if (name == "apply" && is_bound && PyCFunction_GET_SELF(callee) != nullptr &&
      PyType_Check(PyCFunction_GET_SELF(callee))) {
    // of a function of autograd's, whose methods its code in C calls
    for (const char* method : {"forward", "backward", "setup_context", "vjp", "jvp"}) {
      load_of_class(PyCFunction_GET_SELF(callee), interned(method).ptr());
    }
  }
  const bool is_op = is_bound ? does_ops(callee) : is_method;
  if (!is_op) {
    if (name == "getattr" || name == "hasattr") {
      if (arguments.size() > 1) ask_module(arguments[0], arguments[1]);
    } else if (!is_one_of(name, kPassOn) && name.find("has_torch_function") == name.npos) {
      for (PyObject* argument : arguments) {
        FollowedNumbers::current().escape(argument);
        // a set, as that of the modules that `parameters()` has met, looks at no attribute
        if (name != "add") read_module(argument);
      }
    }
    return false;
  }
  if (is_method && name == "item") return begin_ops({}, Reads::kFollowed);
  if (name == "one_hot" && arguments.size() == 2 && PyLong_CheckExact(arguments[1])) {
    const double classes = PyLong_AsDouble(arguments[1]);
    if (classes > 0)
      awaited_.back().classes = classes;  // else it makes as many as there are labels
    PyErr_Clear();
  }
  const Reads reads = is_one_of(name, kGive) ? Reads::kGiven : Reads::kInternal;
  return announce(
      is_maker ? numbers_of_data(arguments) : FollowedNumbers::current().among(arguments), reads,
      name);
}

std::vector<recorder::FrontendHints::Number> Watcher::numbers_of_data(
    std::span<PyObject* const> arguments) {
  std::vector<recorder::FrontendHints::Number> numbers =
      FollowedNumbers::current().among(arguments);
  for (PyObject* const value : arguments) read_data(value, &numbers);
  return numbers;
}

bool Watcher::is_short(const at::Tensor& tensor) {
  constexpr std::int64_t kMost = 1024;
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_complex() &&
         tensor.numel() <= kMost;
}

/// The number that an op has just read from a tensor.
trace::Formula Watcher::newest_read() {
  recorder::FrontendHints& hints = *recorder::FrontendHints::current();
  const std::string read = "ops[" + std::to_string(hints.newest_read()) + "]";
  return trace::leaf(hints.leaf(trace::LeafKind::kHostRead, read));
}

/// `list` is what `tolist` has given of a tensor, with these items left: each is as `item` gives
/// it.
void Watcher::follow_list(PyObject** list, std::span<const at::Tensor>& items) {
  if (PyList_CheckExact(*list)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(*list); ++i)
      follow_list(&PySequence_Fast_ITEMS(*list)[i], items);
    return;
  }
  items.front().item();
  items = items.subspan(1);
  py::object followed = FollowedNumbers::current().follow(*list, newest_read());
  if (!is_followed(followed.ptr())) return;
  recorder::FrontendHints& hints = *recorder::FrontendHints::current();
  hints.said.followed_reads.insert(hints.newest_read());
  Py_DECREF(std::exchange(*list, followed.release().ptr()));
}

void Watcher::follow_list(PyObject** list, const at::Tensor& tensor) {
  if (recorder::FrontendHints::current() == nullptr || tensor.numel() == 0) return;
  const c10::NoGradGuard no_grad;
  const std::vector<at::Tensor> items = tensor.flatten().unbind();
  std::span<const at::Tensor> left(items);
  follow_list(list, left);
}

void Watcher::read_content(const at::Tensor& tensor) {
  if (recorder::FrontendHints::current() == nullptr || !tensor.defined()) return;
  if (!is_short(tensor)) {
    refuse("torch reads a tensor of " + std::to_string(tensor.numel()) + " items as numbers",
           RefusalCode::kHostRead);
    return;
  }
  const c10::NoGradGuard no_grad;
  if (tensor.numel() == 1) {
    tensor.item();
  } else {
    for (const at::Tensor& each : tensor.flatten().unbind()) each.item();
  }
}

void Watcher::look_where(PyObject* value) {
  if (!is_tensor(value) || !tensor_of(value).has_storage()) return;
  if (recorder::FrontendHints* hints = recorder::FrontendHints::current())
    hints->keep_views(tensor_of(value).storage());
  const bool is_of_given = std::ranges::any_of(given_, [value](const auto& entry) {
    const at::Tensor& given = tensor_of(entry.first);
    return given.has_storage() && given.is_alias_of(tensor_of(value));
  });
  if (is_of_given) moving_.compare_offsets();
}

void Watcher::read_data(PyObject* data, std::vector<recorder::FrontendHints::Number>* numbers,
                        int depth) {
  if (depth == 0 || (!PyList_Check(data) && !PyTuple_Check(data))) return;
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data); ++i) {
    PyObject* each = PySequence_Fast_GET_ITEM(data, i);
    if (!is_tensor(each)) {
      read_data(each, numbers, depth - 1);
      continue;
    }
    const at::Tensor& tensor = tensor_of(each);
    const bool is_number = numbers != nullptr && hints != nullptr && tensor.defined() &&
                           tensor.numel() == 1 && is_short(tensor) &&
                           tensor.scalar_type() != at::kBool;
    if (!is_number) {
      read_content(tensor);
      continue;
    }
    const c10::NoGradGuard no_grad;
    const double value = tensor.item().toDouble();
    numbers->push_back({tensor.is_floating_point() ? trace::Value{trace::Real{value}}
                                                   : trace::Value{static_cast<std::int64_t>(value)},
                        newest_read(), static_cast<trace::Index>(i)});
    hints->said.followed_reads.insert(hints->newest_read());
  }
}

bool Watcher::begin_tensor(std::span<PyObject* const> arguments) {
  if (!are_items(arguments)) return false;
  awaited_.back().is_made = true;
  return announce(numbers_of_data(arguments), Reads::kInternal, "tensor");
}

bool Watcher::makes_tensors(PyObject* type) {
  return PyType_IsSubtype(as_type(type), as_type(THPVariableClass)) != 0 ||
         std::string_view(Py_TYPE(type)->tp_name) == "torch.tensortype";
}

void Watcher::read_index(PyObject* index) {
  // a shorter list is taken for a tuple (torch/csrc/autograd/python_variable_indexing.cpp)
  constexpr Py_ssize_t kLeastOfList = 32;
  const bool is_list = PyList_Check(index) != 0;
  if (is_list && PyList_GET_SIZE(index) >= kLeastOfList) return read_data(index);
  if (!is_list && !PyTuple_Check(index)) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(index); ++i)
    read_data(PySequence_Fast_GET_ITEM(index, i));
}

bool Watcher::operation_of_torch(const Instruction& in) {
  const bool is_item =
      in.operation == Operation::kLoadItem || in.operation == Operation::kStoreItem;
  if (is_item && is_tensor(in.first)) read_index(in.second);
  switch (in.operation) {
    case Operation::kBinary:
    case Operation::kCompare:
      if (!is_tensor(in.first) && !is_tensor(in.second)) return false;
      return begin_ops(std::array{in.first, in.second}, Reads::kInternal);
    case Operation::kLoadItem:
      return is_tensor(in.first) && begin_item(in.second, nullptr);
    case Operation::kStoreItem:
      return is_tensor(in.first) && begin_item(in.second, in.third);
    default:
      return false;
  }
}

bool Watcher::look_at_numbers(const Instruction& in) {
  if (in.operation != Operation::kCall) return operation_of_torch(in) || follow(in);
  PyObject* callee = in.callee;
  if (callee == nullptr) return false;
  if (PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
  if (PyFunction_Check(callee)) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callee));
    // Python's own library is not watched where torch's code calls it
    const bool is_seen = whose(code) != Whose::kPythons || is_for_numbers_;
    if (is_seen || is_one_of(view_of(code->co_name), kHandsThrough)) return false;
  }
  std::vector<PyObject*> spread;
  std::span<PyObject* const> arguments(in.arguments, static_cast<std::size_t>(in.count));
  bool has_named = in.keywords != nullptr;
  if (in.spread != nullptr) {
    const GivenToCall given = given_to(in);
    spread = given.positional;
    spread.insert(spread.end(), given.named.begin(), given.named.end());
    arguments = spread;
    has_named = !given.named.empty();
  }
  const auto escape_all = [&] {
    for (PyObject* argument : arguments) {
      FollowedNumbers::current().escape(argument);
      read_module(argument);
    }
    return false;
  };
  if (PyFunction_Check(callee)) return escape_all();
  const bool is_function = PyCFunction_Check(callee) != 0;
  const bool is_descriptor =
      Py_TYPE(callee) == &PyMethodDescr_Type || Py_TYPE(callee) == &PyWrapperDescr_Type;
  // an operator by its schema is a function of pybind11's in a capsule
  const bool is_operator = is_function && PyCFunction_GET_SELF(callee) != nullptr &&
                           PyCapsule_CheckExact(PyCFunction_GET_SELF(callee)) &&
                           known(in.code).is_of_operators;
  if (is_operator) return begin_ops(arguments, Reads::kInternal, "an operator by its schema");
  std::string_view name, module;
  py::object name_of_wrapper;
  if (is_function) {
    name = reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name;
    PyObject* from = reinterpret_cast<PyCFunctionObject*>(callee)->m_module;
    if (from != nullptr) module = view_of(from);
  } else if (is_descriptor) {
    name = view_of(reinterpret_cast<PyDescrObject*>(callee)->d_name);
  } else if (std::string_view(Py_TYPE(callee)->tp_name) == "method-wrapper") {
    name_of_wrapper = borrowed(callee).attr("__name__");
    name = view_of(name_of_wrapper.ptr());
  } else if (PyType_Check(callee)) {
    name = as_type(callee)->tp_name;
    if (makes_tensors(callee))
      std::ranges::for_each(arguments, [this](PyObject* value) { read_data(value); });
  }
  if (!is_descriptor && !has_named) {
    if (const std::optional<bool> waits = compute(name, module, arguments)) return *waits;
  }
  if (is_function || is_descriptor) return call_of_torch(callee, name, arguments);
  return calls_c(callee) && !is_one_of(name, kPassOn) ? escape_all() : false;
}

void Watcher::look_at_module(const Instruction& in) {
  const auto found = modules_.find(in.first);
  if (found == modules_.end()) return;
  if (view_of(in.name) != "__dict__") {
    if (!has_put(in.first, in.name)) found->second.names.insert(in.name);
    return;
  }
  // where torch.nn.Module looks for what is registered in it
  const std::string_view code = view_of(in.code->co_name);
  if (code != "__getattr__" && code != "__setattr__" && code != "__delattr__") {
    ask_for_all(in.first, found->second);
  }
}

void Watcher::look_at_programs(const Instruction& in) {
  PyObject* object = in.operation == Operation::kLoadAttribute ? in.first : nullptr;
  PyObject* name = in.name;
  if (in.operation == Operation::kCall && in.callee != nullptr && PyCFunction_Check(in.callee) &&
      in.arguments != nullptr && in.count > 0) {
    const std::string_view called = reinterpret_cast<PyCFunctionObject*>(in.callee)->m_ml->ml_name;
    const bool is_named = called == "getattr" || called == "hasattr";
    if (!(is_named && in.count > 1) && called != "vars") return;
    object = in.arguments[0];
    name = is_named ? in.arguments[1] : interned("__dict__").ptr();
  }
  if (object == nullptr || is_tensor(object) || is_fixed(object) || !exists(object) ||
      is_torchs_class(Py_TYPE(object)) || !PyUnicode_Check(name))
    return;
  if (text_of(name) == "__dict__") {
    if (PyObject* dict = load_namespace(object)) load_content(dict);
  } else if (!is_made_of_torchs_class(Py_TYPE(object))) {
    load_attribute(object, name);
  }
}

void Watcher::look_at_state(const Instruction& in) {
  const auto found = states_.find(in.first);
  if (found == states_.end()) return;
  static PyObject* const all = PyUnicode_InternFromString("__dict__");
  if (in.operation == Operation::kLoadAttribute) found->second.insert(in.name);
  if (in.operation != Operation::kStoreAttribute) return;
  if (found->second.contains(in.name) || found->second.contains(all)) return;
  PyObject* dict = dict_of(in.first);
  const auto slot = noted_.find(id_of(Kind::kState, dict, in.name));
  if (slot == noted_.end()) return;
  slots_->slot(slot->second).is_guarded = false;
  slots_->slot(slot->second).is_looked_after = true;  // by the slot of the assignment
  write(Kind::kEntry, dict, in.name, path_of(in.first) + "." + text_of(in.name));
}

bool Watcher::look_at_torchs(const Instruction& in) {
  if (in.operation == Operation::kLoadAttribute) look_at_module(in);
  // train() and eval(): what reads the mode after that does not depend on what it was
  if (in.operation == Operation::kStoreAttribute && modules_.contains(in.first) &&
      is_atom(in.second)) {
    store_attribute(in.first, in.name);
  }
  if (!states_.empty()) look_at_state(in);
  look_at_programs(in);
  look_at_switch(in);
  if (is_of_no_number(in)) return false;
  awaited_.emplace_back();
  return look_at_numbers(in);
}

}  // namespace steptape::python::watch
