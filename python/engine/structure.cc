#include "python/engine/structure.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/utils/tensor_numpy.h>

#include <cmath>
#include <iterator>
#include <span>

#include "python/engine/followed.h"
#include "python/engine/moving.h"
#include "python/engine/plain.h"
#include "steptape/error.h"
#include "trace/digest.h"

namespace steptape::python {
namespace {

constexpr std::size_t kOpen = SIZE_MAX;  ///< a container whose items are being taken

/// The class of C's whose instances its own are, but for attributes.
PyTypeObject* base_of_c(PyTypeObject* type) {
  while (is_heap(type) && type->tp_base != nullptr) type = type->tp_base;
  return type;
}

/// An object of a class as C's base of it makes it: none of the class's own code runs.
py::object bare(PyTypeObject* type, const py::tuple& arguments) {
  auto made = stolen(base_of_c(type)->tp_new(type, arguments.ptr(), nullptr));
  if (!made) throw py::error_already_set();
  return made;
}

/// What players make a constant of, as Python writes it. In angle brackets one that they cannot
/// make: a class, a function, a member of an enumeration; and a very long text, with what tells it
/// from others that begin like it.
std::string text_of_constant(PyObject* object, int depth = 32) {
  constexpr std::size_t kLongest = 256;
  if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object)) {
    std::string whole = text_of(py::repr(object).ptr());
    if (whole.size() <= kLongest) return whole;
    const auto bytes = std::as_bytes(std::span(whole));
    return "<" + shown(object) + " " + trace::text_of(trace::digest_of(bytes)) + ">";
  }
  constexpr std::size_t kMostBits = 8192;  // Python writes no int of more than 4,300 digits
  if (PyLong_CheckExact(object) && _PyLong_NumBits(object) > kMostBits) {
    return "<int of " + std::to_string(_PyLong_NumBits(object)) + " bits, hash " +
           std::to_string(PyObject_Hash(object)) + ">";
  }
  if (PyComplex_CheckExact(object)) {  // what Python writes of -0.0 - 2j reads as 0.0 - 2j
    const auto part = [](double value) { return text_of(py::repr(py::float_(value)).ptr()); };
    return "complex(" + part(PyComplex_RealAsDouble(object)) + ", " +
           part(PyComplex_ImagAsDouble(object)) + ")";
  }
  if (PyTuple_CheckExact(object) && depth > 0) {
    std::string items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      items += text_of_constant(PyTuple_GET_ITEM(object, i), depth - 1) + ", ";
    }
    return "(" + items + ")";
  }
  const bool has_words = object == Py_None || object == Py_Ellipsis || PyBool_Check(object) ||
                         PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
                         THPSize_Check(object) || THPDevice_Check(object) ||
                         THPDtype_Check(object) || THPLayout_Check(object) ||
                         THPMemoryFormat_Check(object);
  return has_words ? text_of(py::repr(object).ptr()) : "<" + shown(object) + ">";
}

/// Another such: none is equal to another.
py::object dead_reference() {
  const auto reference = stolen(PyWeakref_NewRef(py::set().ptr(), nullptr));
  if (!reference) throw py::error_already_set();
  return reference;
}

/// A plan makes its tensors outside inference mode.
at::Tensor like_recorded(const at::Tensor& tensor, bool is_inference) {
  if (!is_inference || !tensor.defined() || tensor.is_inference()) return tensor;
  const c10::InferenceMode mode;
  return at::empty({0}, tensor.options())
      .set_(tensor.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

/// A parameter that the step makes, and which requires no gradient, is a tensor to the plan.
py::object of_class(const py::handle& type, py::object tensor) {
  if (tensor.is_none() || py::type::handle_of(tensor).is(type)) return tensor;
  return type.attr("_make_subclass")(type, tensor, tensor.attr("requires_grad"));
}

}  // namespace

std::vector<std::pair<PyObject*, PyObject*>> attributes_of(PyObject* object) {
  PyObject* dict = dict_of(object);
  return dict == nullptr ? std::vector<std::pair<PyObject*, PyObject*>>() : entries_of(dict);
}

bool mirrors_entry(PyObject* container, PyObject* name, PyObject* held) {
  PyObject* item = PyDict_Check(container) ? find_entry(container, name) : nullptr;
  return held == (item == nullptr ? Py_None : item);
}

at::Tensor tensor_behind(PyObject* array) try {
  if (!is_array_of_numpy(array)) return {};
  const py::object base = borrowed(array).attr("base");
  if (!is_exact_tensor(base.ptr())) return {};
  const at::Tensor& tensor = tensor_of(base.ptr());
  // one that got another shape or dtype since is not made again like this
  const py::object dtype = borrowed(array).attr("dtype");
  const py::dict interface = borrowed(array).attr("__array_interface__");
  const py::tuple data = interface["data"];
  std::vector<std::int64_t> strides;
  for (const std::int64_t stride : tensor.strides()) strides.push_back(stride * tensor.itemsize());
  const auto places = [&array](const char* name) {
    return py::cast<std::vector<std::int64_t>>(borrowed(array).attr(name));
  };
  const bool is_whole =
      tensor.sizes() == at::IntArrayRef(places("shape")) && strides == places("strides") &&
      torch::utils::numpy_dtype_to_aten(py::cast<int>(dtype.attr("num"))) == tensor.scalar_type() &&
      (tensor.numel() == 0 || py::cast<std::uintptr_t>(data[0]) ==
                                  reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()));
  return is_whole ? tensor : at::Tensor();
} catch (const std::exception&) {  // a dtype that torch has not
  return {};
}

bool is_dataclass(PyObject* object) {
  return in_class(Py_TYPE(object), "__dataclass_fields__") != nullptr;
}

bool has_slots(PyTypeObject* type) {
  if (in_class(type, "__slots__") == nullptr) return false;
  for (PyTypeObject* base : bases_of(type)) {
    if (!is_heap(base)) continue;
    const py::object dict = dict_of_type(base);
    for (const auto& [key, member] : entries_of(dict.ptr())) {
      if (Py_TYPE(member) == &PyMemberDescr_Type) return true;
    }
  }
  return false;
}

/// What a constant holds, which may be something else in each call that makes it: a module or an
/// optimizer itself, the object of a method, a function with defaults or cells; else null.
PyObject* holder_of(PyObject* callable) {
  if (is_part_of_model(callable)) return callable;
  if (PyMethod_Check(callable)) return PyMethod_GET_SELF(callable);
  if (PyFunction_Check(callable)) {
    const bool holds = PyFunction_GET_CLOSURE(callable) != nullptr ||
                       PyFunction_GET_DEFAULTS(callable) != nullptr ||
                       PyFunction_GET_KW_DEFAULTS(callable) != nullptr;
    return holds ? callable : nullptr;
  }
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  return self == nullptr || PyModule_Check(self) || PyType_Check(self) ? nullptr : self;
}

bool is_fixed(PyObject* object) {
  static PyObject* const joined = attribute_type("types", "UnionType");
  return PyType_Check(object) || Py_TYPE(object) == &Py_GenericAliasType ||
         is_exactly(object, joined) || PyFunction_Check(object) || PyCFunction_Check(object) ||
         PyMethod_Check(object) || PyModule_Check(object) || PyBytes_CheckExact(object) ||
         PyComplex_CheckExact(object) || object == Py_Ellipsis || THPDtype_Check(object) ||
         THPDevice_Check(object) || THPLayout_Check(object) || THPMemoryFormat_Check(object) ||
         is_generator(object) || in_class(Py_TYPE(object), "_member_map_") != nullptr ||
         is_part_of_model(object) || type_name(object) == "steptape._step.Step";
}

bool is_part_of_model(PyObject* object) {
  static auto* const module = as_type(imported("torch.nn", "Module"));
  static auto* const optimizer = as_type(imported("torch.optim", "Optimizer"));
  return PyType_IsSubtype(Py_TYPE(object), module) != 0 ||
         PyType_IsSubtype(Py_TYPE(object), optimizer) != 0;
}

bool keeps_to_itself(PyTypeObject* type) {
  static auto* const storage = as_type(imported("torch._C", "StorageBase"));
  if (!is_torchs(type)) return false;
  const bool is_pybinds = type_name(Py_TYPE(type)).ends_with("pybind11_type");
  const bool is_constant =
      in_class(type, "__members__") != nullptr || in_class(type, "__call__") != nullptr;
  return (is_pybinds && !is_constant) || PyType_IsSubtype(type, storage) != 0;
}

bool never_changes(PyObject* value) {
  if (is_fixed(value) || is_atom(value) || PyTuple_Check(value) || PyUnicode_Check(value) ||
      PyLong_Check(value) || PyFloat_Check(value) || PyRange_Check(value) || PySlice_Check(value) ||
      PyCell_Check(value) || Py_TYPE(value) == &PySuper_Type)
    return true;
  constexpr std::array<std::string_view, 12> kOf = {
      "re.", "datetime.", "decimal.Decimal", "_struct.Struct", "functools.partial", "operator.",
      "itertools.", "numpy.", "torch.", "types.",
      // a function of pybind11's is a method of one of these
      "PyCapsule", "pybind11_builtins."};
  if (keeps_to_itself(Py_TYPE(value))) return false;
  const std::string& type = type_name(value);
  const auto is_of = [&type](std::string_view name) { return type.starts_with(name); };
  return std::ranges::any_of(kOf, is_of);
}

bool is_plain_object(PyObject* object) {
  static auto* const simple = as_type(imported("types", "SimpleNamespace"));
  PyTypeObject* type = Py_TYPE(object);
  if (is_tensor(object) || is_fixed(object) || dict_of(object) == nullptr) return false;
  if (type == simple) return true;
  if (base_of_c(type) != &PyBaseObject_Type || type == &PyBaseObject_Type || has_slots(type))
    return false;
  return is_dataclass(object) || (type->tp_new == PyBaseObject_Type.tp_new &&
                                  type->tp_del == nullptr && in_class(type, "__del__") == nullptr);
}

void Structure::add(Roots& roots, const Part& part, pack::Results& flat,
                    const OnNumber& on_number) {
  constexpr int kDepth = 32;
  Taken taken;
  taken.root = take({roots, taken, part.has_constants, flat, on_number}, part.value,
                    part.references, kDepth);
  parts_.push_back(std::move(taken));
}

bool Structure::holds_nothing_mutable(const Node& node) {
  switch (node.kind) {
    case Kind::kTensor:
    case Kind::kNumber:
    case Kind::kGiven:
      return true;
    case Kind::kConstant:
      return is_atom(node.object.get());
    case Kind::kTuple:
    case Kind::kNamedTuple:
      return std::ranges::all_of(node.items, holds_nothing_mutable);
    default:
      return false;
  }
}

Structure::Node Structure::take(const Taking& into, PyObject* value, Py_ssize_t references,
                                int depth) {
  Roots& roots = into.roots;
  pack::Results& flat = into.flat;
  Taken& part = into.part;
  Node node;
  if (is_tensor(value)) {
    node.kind = Kind::kTensor;
    flat.tensors.push_back(tensor_of(value));
    node.is_inference = tensor_of(value).is_inference();
    part.has_subclass |= !is_exact_tensor(value);
    node.object = Root(roots, reinterpret_cast<PyObject*>(Py_TYPE(value)));
    PyObject** dict = _PyObject_GetDictPtr(value);
    if (dict != nullptr && *dict != nullptr && PyDict_GET_SIZE(*dict) != 0) {
      part.opaque = "tensor with attributes of its own";
    }
    part.text += "tensor";
    return node;
  }
  FollowedNumbers::current().read(value);  // it stays what it is
  const auto number = [&](auto found, const char* kind) {
    if (into.has_constants && !is_followed(value)) {
      node.object = Root(roots, value);
      // one of the program's class may write itself otherwise
      const bool is_own = PyFloat_Check(value) && !is_float(value);
      part.text += is_own ? shown(value) : text_of(py::repr(value).ptr());
      return;
    }
    node.kind = Kind::kNumber;
    into.on_number(flat.numbers.size(), value);
    flat.numbers.emplace_back(found);
    part.text += kind;
  };
  if (PyBool_Check(value)) {
    number(value == Py_True, "bool");
    return node;
  }
  if (PyFloat_Check(value)) {
    if (!is_float(value)) part.opaque = type_name(value);
    number(PyFloat_AS_DOUBLE(value), PyFloat_CheckExact(value) ? "float" : "numpy.float64");
    if (node.kind == Kind::kNumber && !PyFloat_CheckExact(value))
      node.object = Root(roots, reinterpret_cast<PyObject*>(Py_TYPE(value)));
    return node;
  }
  if (PyLong_CheckExact(value)) {
    if (const auto integer = int64_of(value)) {
      number(*integer, "int");
      return node;
    }
  }
  // what the caller changes in one place changes in all
  if (const auto met = containers_.find(value); met != containers_.end()) {
    node.kind = Kind::kSame;
    node.same = met->second.position;
    --met->second.held_elsewhere;
    part.text += "same[" + std::to_string(node.same) + "]";
    if (node.same == kOpen) part.opaque = type_name(value) + " that holds itself";
    return node;
  }
  if (const auto at = given_.find(value); at != given_.end()) {
    node.kind = Kind::kGiven;
    node.same = at->second;
    part.text += "given[" + std::to_string(node.same) + "]";
    return node;
  }
  if (is_known_ && may_stand_for(value, value) && is_known_(value)) {  // which one is guarded
    node.kind = Kind::kKept;
    node.object = Root(roots, value);
    const auto address = reinterpret_cast<std::uintptr_t>(value);
    part.text += "<" + type_name(value) + " at " + std::to_string(address) + ">";
    return node;
  }
  const at::Tensor behind = tensor_behind(value);
  const bool is_object = !PyDict_Check(value) && !PyTuple_Check(value) && is_plain_object(value);
  node.is_shared = PyList_Check(value) || PyDict_Check(value) || is_object || behind.defined() ||
                   is_dead_reference(value);
  const Container container{kOpen, parts_.size(), type_name(value), Py_REFCNT(value) - references};
  if (node.is_shared) containers_.emplace(value, container);
  if (behind.defined()) {
    node.kind = Kind::kArray;
    flat.tensors.push_back(behind);
    part.text += "numpy.ndarray";
  } else if (depth > 0 && PyTuple_Check(value) && !THPSize_Check(value)) {
    node.kind = PyTuple_CheckExact(value) ? Kind::kTuple : Kind::kNamedTuple;
    if (!attributes_of(value).empty()) part.opaque = type_name(value);
    node.object = Root(roots, reinterpret_cast<PyObject*>(Py_TYPE(value)));
    part.text += "(";
    const std::size_t before = flat.tensors.size();
    take_items(into, value, node, depth);
    // one that was there before stays that object, and a replay would make another
    const bool may_change = _PyObject_GetDictPtr(value) != nullptr;
    node.is_shared = flat.tensors.size() != before || may_change;
    if (node.is_shared) {
      containers_.emplace(value, container).first->second.is_fixed =
          !may_change && holds_nothing_mutable(node);
    }
    // as Python writes it
    part.text += PyTuple_GET_SIZE(value) == 1 ? ",)" : ")";
  } else if (depth > 0 && PyList_CheckExact(value)) {
    node.kind = Kind::kList;
    part.text += "[";
    take_items(into, value, node, depth);
    part.text += "]";
  } else if (depth > 0 && PyDict_Check(value)) {
    node.kind = Kind::kDict;
    node.object = Root(roots, reinterpret_cast<PyObject*>(Py_TYPE(value)));
    if (is_default_dict(value)) {
      node.factory = Root(roots, factory_of(value).ptr());
    }
    PyObject* const factory = node.factory.get();
    const bool is_known = PyDict_CheckExact(value) || Py_TYPE(value) == &PyODict_Type ||
                          (factory != nullptr && (factory == Py_None || PyType_Check(factory))) ||
                          (is_dataclass(value) && !has_slots(Py_TYPE(value)));
    if (!is_known) part.opaque = type_name(value);
    take_dict(into, value, node, depth);
    for (const auto& [name, held] : attributes_of(value)) {
      if (!mirrors_entry(value, name, held)) part.opaque = type_name(value);
      node.attributes.emplace_back(roots, name);
    }
  } else if (depth > 0 && is_object) {
    node.kind = Kind::kObject;
    node.object = Root(roots, reinterpret_cast<PyObject*>(Py_TYPE(value)));
    part.text += type_name(value) + "(";
    take_dict(into, dict_of(value), node, depth);
    part.text += ")";
  } else if (is_dead_reference(value)) {
    node.kind = Kind::kDeadReference;
    part.text += "<dead weak reference>";
  } else {
    node.kind = Kind::kConstant;
    node.object = Root(roots, value);
    const bool is_text = PyUnicode_CheckExact(value) || PyBytes_CheckExact(value);
    if (value != Py_None && !is_text && !PyLong_Check(value) && !THPSize_Check(value) &&
        !is_fixed(value)) {
      part.opaque = type_name(value);
    }
    part.text += text_of_constant(value);
    if (PyObject* holder = holder_of(value)) {
      // of a list or tensor nobody knows whether it was read from where the step had put it
      const bool may_be_new = PyCFunction_Check(value) && !is_part_of_model(holder);
      if (is_known_ && (may_be_new || !is_known_(holder)))
        part.opaque = type_name(value) + " that it makes";
    }
  }
  if (node.is_shared) containers_.at(value).position = complete_++;
  return node;
}

void Structure::settle(const std::function<bool(PyObject*)>& is_held_here) {
  for (const auto& [object, container] : containers_) {
    if (container.is_fixed || container.held_elsewhere <= (is_held_here(object) ? 1 : 0)) continue;
    parts_[container.part].opaque = container.type + " that is held elsewhere too";
  }
  containers_.clear();
  given_.clear();
  is_known_ = nullptr;
  is_given_key_ = nullptr;
}

void Structure::take_items(const Taking& into, PyObject* sequence, Node& node, int depth) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    if (i > 0) into.part.text += ", ";
    node.items.push_back(take(into, PySequence_Fast_GET_ITEM(sequence, i), 1, depth - 1));
  }
}

void Structure::take_dict(const Taking& into, PyObject* dict, Node& node, int depth) {
  into.part.text += "{";
  PyObject* mirror = PyDict_CheckExact(dict) ? nullptr : dict_of(dict);
  for (const auto& [key, value] : entries_of(dict)) {
    if (!node.items.empty()) into.part.text += ", ";
    into.part.text += text_of_constant(key) + ": ";
    node.keys.emplace_back(into.roots, key);
    if (is_given_key_ && is_given_key_(key))
      into.part.opaque = type_name(dict) + " under keys that it is given";
    const bool is_twice = mirror != nullptr && find_entry(mirror, key) == value;
    node.items.push_back(take(into, value, is_twice ? 2 : 1, depth - 1));
  }
  into.part.text += "}";
}

void Structure::flatten(const Node& node, PyObject* value, pack::Results& flat) {
  switch (node.kind) {
    case Kind::kTensor:
      flat.tensors.push_back(value != nullptr && is_tensor(value) ? tensor_of(value)
                                                                  : at::Tensor());
      return;
    case Kind::kArray:
      flat.tensors.push_back(value == nullptr ? at::Tensor() : tensor_behind(value));
      return;
    case Kind::kNumber:
      if (value != nullptr && PyBool_Check(value)) {
        flat.numbers.emplace_back(value == Py_True);
      } else if (value != nullptr && PyLong_Check(value)) {
        flat.numbers.emplace_back(static_cast<std::int64_t>(PyLong_AsLongLong(value)));
      } else {
        flat.numbers.emplace_back(
            value != nullptr && PyFloat_Check(value) ? PyFloat_AS_DOUBLE(value) : std::nan(""));
      }
      return;
    case Kind::kConstant:
    case Kind::kDeadReference:
    case Kind::kSame:
    case Kind::kGiven:
    case Kind::kKept:
      return;
    case Kind::kTuple:
    case Kind::kNamedTuple:
    case Kind::kList: {
      const bool fits = value != nullptr && (PyTuple_Check(value) || PyList_Check(value)) &&
                        PySequence_Fast_GET_SIZE(value) == std::ssize(node.items);
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        flatten(node.items[i],
                fits ? PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i)) : nullptr, flat);
      }
      return;
    }
    case Kind::kDict:
    case Kind::kObject:
      break;
  }
  PyObject* dict = value == nullptr || PyDict_Check(value) ? value : dict_of(value);
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    flatten(node.items[i], dict == nullptr ? nullptr : find_entry(dict, node.keys[i].get()), flat);
  }
}

std::vector<py::object> Structure::build(const pack::Results& flat,
                                         std::span<PyObject* const> given) const {
  Next next{.given = given};
  std::vector<py::object> built;
  built.reserve(parts_.size());
  for (const Taken& part : parts_) built.push_back(build(part.root, flat, next));
  return built;
}

py::object Structure::build(const Node& node, const pack::Results& flat, Next& next) const {
  switch (node.kind) {
    case Kind::kTensor:
      return of_class(node.object.get(),
                      object_of(like_recorded(flat.tensors.at(next.tensor++), node.is_inference)));
    case Kind::kNumber: {
      const auto& number = flat.numbers.at(next.number++);
      const auto* real = std::get_if<double>(&number);
      auto* type = as_type(node.object.get());
      if (type != nullptr && real != nullptr) return float_of_class(type, *real);
      return std::visit([](auto value) -> py::object { return py::cast(value); }, number);
    }
    case Kind::kConstant:
    case Kind::kKept:
      return borrowed(node.object.get());
    case Kind::kSame:
      return next.shared.at(node.same);
    case Kind::kGiven:
      if (node.same >= next.given.size())
        throw Error(ErrorCode::kInternal, "the call is given fewer containers than were recorded");
      return borrowed(next.given[node.same]);
    default:
      break;
  }
  py::object made = build_container(node, flat, next);
  if (node.is_shared) next.shared.push_back(made);
  return made;
}

py::object Structure::build_container(const Node& node, const pack::Results& flat,
                                      Next& next) const {
  if (node.kind == Kind::kArray) return object_of(flat.tensors.at(next.tensor++)).attr("numpy")();
  if (node.kind == Kind::kDeadReference) return dead_reference();
  py::list items;
  for (const Node& item : node.items) items.append(build(item, flat, next));
  switch (node.kind) {
    case Kind::kList:
      return items;
    case Kind::kTuple:
      return py::tuple(items);
    case Kind::kNamedTuple: {
      const auto type = borrowed(node.object.get());
      const bool is_of_c = py::hasattr(type, "n_sequence_fields");  // as of torch.return_types
      return is_of_c ? type(py::tuple(items))
                     : bare(as_type(type.ptr()), py::make_tuple(py::tuple(items)));
    }
    default:
      return build_dict(node, items);
  }
}

py::object Structure::build_dict(const Node& node, const py::list& items) {
  py::object made = bare(as_type(node.object.get()), py::tuple());
  PyObject* dict = node.kind == Kind::kDict ? made.ptr() : dict_made_of(made.ptr());
  int failed = 0;
  if (!node.factory.is_empty()) made.attr("default_factory") = borrowed(node.factory.get());
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    failed |= set_entry(dict, node.keys[i].get(), items[i].ptr());
  }
  for (const Root& name : node.attributes) {
    PyObject* item = PyDict_GetItemWithError(dict, name.get());
    failed |=
        PyDict_SetItem(dict_made_of(made.ptr()), name.get(), item == nullptr ? Py_None : item);
  }
  if (failed != 0) throw py::error_already_set();
  return made;
}

}  // namespace steptape::python
