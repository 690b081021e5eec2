#include "python/engine/python.h"
#include "python/engine/structure.h"
#include "python/engine/type_watch.h"
#include "python/engine/watch/watcher.h"

/// What a step asks of classes: their attributes and order, and their special methods, which
/// instructions and code of C's look up by themselves.
namespace steptape::python::watch {
namespace {

std::span<PyObject* const> items_of(PyObject* tuple) {
  if (!PyTuple_Check(tuple)) return {};
  return {PySequence_Fast_ITEMS(tuple), static_cast<std::size_t>(PyTuple_GET_SIZE(tuple))};
}

/// The names in a function's code, and in the functions of it and of what holds functions.
void add_names_in(PyObject* value, std::unordered_set<std::string>& names) {
  if (PyCode_Check(value)) {
    for (const char* part : {"co_names", "co_consts"}) {
      const auto items = py::reinterpret_steal<py::tuple>(PyObject_GetAttrString(value, part));
      for (const py::handle& item : items) {
        if (PyUnicode_Check(item.ptr())) names.insert(text_of(item.ptr()));
        if (PyCode_Check(item.ptr())) add_names_in(item.ptr(), names);
      }
    }
  } else if (PyFunction_Check(value)) {
    add_names_in(PyFunction_GET_CODE(value), names);
  } else {  // a property and the like
    for (const char* part : {"fget", "fset", "__func__", "wrapped", "__wrapped__"}) {
      const py::object inner = member(value, part);
      if (inner && PyFunction_Check(inner.ptr())) add_names_in(inner.ptr(), names);
    }
  }
}

}  // namespace

bool is_got_by_python(PyObject* descriptor) {
  PyObject* get = in_class(Py_TYPE(descriptor), "__get__");
  return get == nullptr || PyFunction_Check(get);
}

bool Watcher::is_made_of_torchs_class(PyTypeObject* type) {
  for (PyTypeObject* base : bases_of(type)) {
    if (is_torchs_class(base)) return !type_name(base).starts_with("torch._");  // as operators are
  }
  return false;
}

bool Watcher::is_torchs_class(PyTypeObject* type) {
  const auto [entry, is_new] = torchs_classes_.try_emplace(type, false);
  if (is_new) entry->second = type_name(type).starts_with("torch.");
  return entry->second;
}

const std::unordered_set<std::string>& Watcher::names_of_torchs(PyTypeObject* type) {
  const auto [entry, is_new] = names_of_torchs_.try_emplace(type);
  if (!is_new) return entry->second;
  for (PyTypeObject* base : bases_of(type)) {
    if (!is_torchs_class(base)) continue;
    const py::object dict = dict_of_type(base);
    for (const auto& [name, member] : entries_of(dict.ptr())) {
      entry->second.insert(text_of(name));
      add_names_in(member, entry->second);
    }
  }
  return entry->second;
}

void Watcher::class_of(PyObject* object) {
  if (is_heap(Py_TYPE(object)) && exists(object) && !is_tensor(object)) {
    read(Kind::kClass, object, nullptr, path_of(object) + ".__class__");
  }
}

void Watcher::load_matched(const Instruction& in) {
  if (in.second == nullptr || !PyType_Check(in.second)) return;
  load_order(in.first);
  load_methods(in.second);  // of its class: __instancecheck__
  if (in.count == 0) return;
  load_of_class(in.second, interned("__match_args__").ptr());
  PyObject* names = in_class(as_type(in.second), "__match_args__");
  if (names == nullptr || !PyTuple_Check(names)) return;
  for (Py_ssize_t i = 0; i < std::min(in.count, PyTuple_GET_SIZE(names)); ++i) {
    load_attribute(in.first, PyTuple_GET_ITEM(names, i));
  }
}

void Watcher::look_up(PyObject* object, const char* name) {
  if (!is_heap(Py_TYPE(object)) || is_tensor(object)) return;
  class_of(object);
  load_methods(object);
  if (exists(object) && !is_fixed(object) && is_made_of_torchs_class(Py_TYPE(object)))
    load_given(object);
  if (name == nullptr) return;
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  read(Kind::kAttribute, type, interned(name).ptr(), type_name(object) + "." + name);
}

void Watcher::load_wrapped(PyObject* wrapper, const char* name) {
  if (!exists(wrapper)) return;
  PyObject* of_class = in_class(Py_TYPE(wrapper), name);
  if (is_member(of_class)) read(Kind::kMember, wrapper, of_class, path_of(wrapper) + "." + name);
}

void Watcher::load_methods(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyType_Check(object) && exists(object) && is_heap(as_type(object)))
    read(Kind::kClass, object, nullptr, path_of(object) + ".__class__");
  if (!is_heap(type) || (is_tensor(object) && is_torchs(type)) || is_part_of_model(object)) return;
  if (can_become_another(type)) class_of(object);
  if (exists(object) && has_compiled_methods(type) && given_to_compiled_.insert(object).second)
    load_objects(object);
  auto* owner = reinterpret_cast<PyObject*>(type);
  if (noted_.contains(id_of(Kind::kMethods, owner, nullptr))) return;
  const std::string path = type_name(type) + "'s methods";
  read(Kind::kMethods, owner, nullptr, path);
  for (const py::handle& method : methods_of(type)) {
    // code of C's in the place of a method is called without the object, partial functions too,
    // though CPython 3.13 has them warn that this will change
    const bool is_of_class = Py_TYPE(method.ptr()) == &PyClassMethod_Type;
    const bool is_static = Py_TYPE(method.ptr()) == &PyStaticMethod_Type;
    const py::object called =
        is_static || is_of_class ? member(method.ptr(), "__func__") : borrowed(method.ptr());
    const bool is_bound =
        !is_static && Py_TYPE(called.ptr())->tp_descr_get != nullptr &&
        !std::string_view(Py_TYPE(called.ptr())->tp_name).starts_with("functools.partial");
    if (is_cache_of_functools(called.ptr())) {
      refuse("the step works with objects of `" + type_name(type) +
             "`, which has a special method under functools.lru_cache: what it gives may be of a "
             "call before");
    }
    if (is_bound || PyUnicode_Check(called.ptr()) || PyFunction_Check(called.ptr())) continue;
    mark(called.ptr(), path);
    call_own(called.ptr(), is_of_class ? std::vector<PyObject*>{owner} : std::vector<PyObject*>());
  }
}

bool Watcher::has_compiled_methods(PyTypeObject* type) {
  const auto [entry, is_new] = compiled_.try_emplace(type, false);
  if (!is_new) return entry->second;
  const py::object methods = methods_of(type);
  entry->second = std::any_of(methods.begin(), methods.end(), [](const py::handle& each) {
    PyTypeObject* of = Py_TYPE(each.ptr());
    const bool is_known =
        PyFunction_Check(each.ptr()) || of == &PyMethodDescr_Type || of == &PyWrapperDescr_Type ||
        of == &PyClassMethodDescr_Type || of == &PyClassMethod_Type || of == &PyStaticMethod_Type ||
        of == &PyProperty_Type || std::string_view(of->tp_name).starts_with("functools.");
    return !is_known && of->tp_descr_get != nullptr && !is_got_by_python(each.ptr());
  });
  return entry->second;
}

void Watcher::load_methods_of_operands(const Instruction& in) {
  const auto look = [this](PyObject* operand) {
    if (operand == nullptr) return;
    load_methods(operand);
    if (PySlice_Check(operand)) {
      const auto* slice = reinterpret_cast<PySliceObject*>(operand);
      for (PyObject* bound : {slice->start, slice->stop, slice->step}) load_methods(bound);
    }
    for (Py_ssize_t i = 0; PyTuple_Check(operand) && i < PyTuple_GET_SIZE(operand); ++i) {
      load_methods(PyTuple_GET_ITEM(operand, i));
    }
  };
  switch (in.operation) {
    case Operation::kLoadItem:
    case Operation::kStoreItem:
    case Operation::kDeleteItem:
    case Operation::kBinary:
    case Operation::kCompare:
    case Operation::kContains:
    case Operation::kMatchKeys:
      look(in.second);
      [[fallthrough]];
    case Operation::kUnary:
    case Operation::kTest:
    case Operation::kFormat:
    case Operation::kIterate:
    case Operation::kNext:
    case Operation::kSpread:
    case Operation::kLength:
      return look(in.first);
    case Operation::kHash:
      for (Py_ssize_t i = 0; i < in.count; i += in.stride) load_hashed(in.arguments[i]);
      return;
    case Operation::kCall:
      look(in.callee);
      look(in.spread);
      return look(in.spread_named);
    default:
      return;
  }
}

void Watcher::load_hashed(PyObject* value) {
  if (value == nullptr) return;
  load_methods(value);
  for (PyObject* item : items_of(value)) load_hashed(item);
}

void Watcher::load_of_class(PyObject* type, PyObject* name) {
  const std::string path =
      (exists(type) ? path_of(type) : type_name(as_type(type))) + "." + text_of(name);
  auto* meta = reinterpret_cast<PyObject*>(Py_TYPE(type));
  if (is_heap(Py_TYPE(type))) read(Kind::kAttribute, meta, name, path);
  load_methods(type);
  if (!is_heap(as_type(type))) return;
  // `__name__` and the like
  PyObject* of_meta = _PyType_Lookup(Py_TYPE(type), name);
  if (is_member(of_meta) && text_of(name) != "__dict__") read(Kind::kMember, type, of_meta, path);
  text_of(name) == "__dict__" ? load_members(type) : read(Kind::kAttribute, type, name, path);
  load_descriptor(Py_TYPE(type), name);
  load_descriptor(as_type(type), name);
}

void Watcher::load_descriptor(PyTypeObject* type, PyObject* name) {
  if (PyObject* found = _PyType_Lookup(type, name)) load_methods(found);
}

void Watcher::make_class(PyObject* bases) {
  for (PyObject* base : items_of(bases)) make_class(base);
  if (!PyType_Check(bases) || !is_made_by_class(as_type(bases))) return;
  load_of_class(bases, interned("__init_subclass__").ptr());
  auto* meta = reinterpret_cast<PyObject*>(Py_TYPE(bases));
  if (is_heap(Py_TYPE(bases)))
    read(Kind::kAttribute, meta, interned("mro").ptr(), type_name(Py_TYPE(bases)) + ".mro");
}

void Watcher::load_order(PyObject* object) {
  PyObject* type = PyType_Check(object) ? object : reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (is_heap(as_type(type)) && !is_part_of_model(object))
    load_of_class(type, interned("__mro__").ptr());
}

void Watcher::load_members(PyObject* type) {
  auto* of = as_type(type);
  if (!is_heap(of)) return;
  const py::object dict = dict_of_type(of);
  read(Kind::kKeys, dict.ptr(), nullptr, type_name(of) + ".__dict__");
  for (const auto& [key, value] : entries_of(dict.ptr())) {
    read(Kind::kAttribute, type, key, type_name(of) + "." + text_of(key));
  }
}

void Watcher::load_of_super(PyObject* super, PyObject* name) {
  const py::object from = member(super, "__thisclass__");
  const py::object type = member(super, "__self_class__");
  if (const py::object of = member(super, "__self__"); of && !PyType_Check(of.ptr()))
    class_of(of.ptr());
  if (from && type) load_behind(from.ptr(), type.ptr(), name);
}

void Watcher::load_behind(PyObject* from, PyObject* object, PyObject* name) {
  const bool is_class = PyType_Check(object) && PyType_Check(from) &&
                        PyType_IsSubtype(as_type(object), as_type(from)) != 0;
  PyTypeObject* const type = is_class ? as_type(object) : Py_TYPE(object);
  if (!is_class) class_of(object);
  load_order(is_class ? object : reinterpret_cast<PyObject*>(Py_TYPE(object)));
  bool is_behind = false;
  for (PyTypeObject* base : bases_of(type)) {
    if (is_behind && is_heap(base)) {
      const py::object dict = dict_of_type(base);
      read(Kind::kEntry, dict.ptr(), name, type_name(base) + "." + text_of(name));
      if (PyObject* found = PyDict_GetItemWithError(dict.ptr(), name)) return load_methods(found);
    }
    is_behind |= reinterpret_cast<PyObject*>(base) == from;
  }
}

}  // namespace steptape::python::watch
