#include "python/engine/arguments.h"
#include "python/engine/python.h"
#include "python/engine/structure.h"
#include "python/engine/type_watch.h"
#include "python/engine/watch/watcher.h"

namespace steptape::python::watch {
namespace {

/// As a plan looks at each item of it before every replay.
constexpr Py_ssize_t kMostItems = 10'000;

/// What gives its items once, so that it is another one after that.
bool is_iterator(PyObject* value) {
  if (PyGen_Check(value)) return true;
  PyObject* found = PyIter_Check(value) != 0 ? in_class(Py_TYPE(value), "__next__") : nullptr;
  return found != nullptr && !PyFunction_Check(found);  // that is watched
}

/// Whether attributes of its instances are found, or set, by code of C's other than object's, as
/// those of threading.local are.
bool has_own_lookup(PyTypeObject* type, bool sets) {
  PyObject* own = in_class(type, sets ? "__setattr__" : "__getattribute__");
  if (own == nullptr || Py_TYPE(own) != &PyWrapperDescr_Type) return false;
  const PyTypeObject* of = reinterpret_cast<PyDescrObject*>(own)->d_type;
  return sets ? of->tp_setattro != &PyObject_GenericSetAttr
              : of->tp_getattro != &PyObject_GenericGetAttr;
}

/// The functions that torch's modules call, which a program may replace.
PyObject* functional() {
  // an import would ask the builtins of the frame that runs, which may have none
  static PyObject* const dict =
      PyModule_GetDict(PyImport_GetModule(py::str("torch.nn.functional").ptr()));
  return dict;
}

/// Whether dicts give its items in C, without code of its class.
bool has_items_of_dict(PyObject* object) {
  return PyDict_Check(object) &&
         Py_TYPE(object)->tp_as_mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript;
}

/// Whether a setting of torch's (torch/utils/_config_module.py) is asked for the value that the
/// program has given it. The default of one that is a container is copied there as it is read.
bool is_value_of_setting(const Instruction& in) {
  if (in.operation != Operation::kLoadAttribute || view_of(in.name) != "user_override")
    return false;
  if (std::string_view(Py_TYPE(in.first)->tp_name) != "_ConfigEntry") return false;
  PyObject* dict = dict_of(in.first);
  PyObject* fallback = dict == nullptr ? nullptr : PyDict_GetItemString(dict, "default");
  return fallback != nullptr && is_atom(fallback);
}

}  // namespace

bool is_of_c(PyTypeObject* type, const char* method) {
  PyObject* found = in_class(type, method);
  return found != nullptr && !PyFunction_Check(found);
}

/// Whether what it does with a value that an attribute is given is code of C's.
bool is_set_by_c(PyObject* descriptor) {
  if (Py_TYPE(descriptor) != &PyProperty_Type) return is_of_c(Py_TYPE(descriptor), "__set__");
  const py::object sets = member(descriptor, "fset");
  return sets && PyCFunction_Check(sets.ptr());
}

bool is_container(PyObject* value) {
  return PyList_Check(value) || PyDict_Check(value) || PyAnySet_Check(value) || is_array(value) ||
         Py_TYPE(value) == &PyDictKeys_Type || Py_TYPE(value) == &PyDictValues_Type ||
         Py_TYPE(value) == &PyDictItems_Type || type_name(value) == "collections.deque";
}

std::optional<Py_ssize_t> appended_by(std::string_view method, PyObject* owner, PyObject* given) {
  if (!PyList_Check(owner) && !is_deque(owner)) return std::nullopt;
  if (method == "append") return 1;
  if (method != "extend") return std::nullopt;
  if (PyList_Check(given) || PyTuple_Check(given)) return PySequence_Fast_GET_SIZE(given);
  return is_deque(owner) ? std::nullopt : std::optional<Py_ssize_t>(0);
}

void Watcher::load_global(const Instruction& in) {
  const std::string path = text_of(in.name);
  read(Kind::kEntry, in.globals, in.name, path);
  if (PyDict_Check(in.builtins) && PyDict_GetItemWithError(in.globals, in.name) == nullptr) {
    read(Kind::kEntry, in.builtins, in.name, path);
  }
}

void Watcher::look_at_switch(const Instruction& in) {
  const bool is_global = in.operation == Operation::kLoadGlobal;
  const bool is_stored =
      in.operation == Operation::kStoreGlobal || in.operation == Operation::kStoreAttribute;
  if (!is_global && !is_stored && in.operation != Operation::kLoadAttribute) return;
  Kind kind = Kind::kEntry;
  PyObject* owner = in.globals;
  if (!is_global && in.operation != Operation::kStoreGlobal) {
    const bool is_of_class = PyType_Check(in.first) != 0;
    const bool is_of_module = PyModule_Check(in.first) != 0;
    if (is_stored && !is_of_class && !is_of_module) return;
    kind = is_of_module ? Kind::kEntry : Kind::kAttribute;
    owner = is_of_module  ? PyModule_GetDict(in.first)
            : is_of_class ? in.first
                          : reinterpret_cast<PyObject*>(Py_TYPE(in.first));
  }
  const bool is_setting = is_value_of_setting(in);
  if (is_setting) {
    kind = Kind::kEntry;
    owner = dict_of(in.first);
    // in torch 2.15 each context may have one of its own
    PyObject* variable = PyDict_GetItemWithError(owner, in.name);
    if (variable != nullptr && PyContextVar_CheckExact(variable)) {
      kind = Kind::kVariable;
      owner = variable;
    }
  }
  auto* type = as_type(owner);
  if (kind == Kind::kAttribute && !is_heap(type)) return;
  py::object held;
  PyObject* value = nullptr;
  if (kind == Kind::kVariable) {
    if (PyContextVar_Get(owner, nullptr, &value) != 0) PyErr_Clear();
    held = stolen(value);
  } else {
    value = kind == Kind::kEntry ? PyDict_GetItemWithError(owner, in.name)
                                 : _PyType_Lookup(type, in.name);
  }
  if (value == nullptr && !is_setting) return;
  // classes of the program's, and of modules that it makes in the step: their methods, too
  const bool is_programs = kind == Kind::kAttribute && !modules_.contains(in.first) &&
                           (!is_torchs_class(type) || is_part_of_model(in.first));
  // one that is there or not: a process group, what tells a worker of itself
  const bool is_object = is_global && !is_fixed(value) && !is_container(value) &&
                         PyCallable_Check(value) == 0 && !is_tensor(value);
  if (!is_setting && !is_atom(value) && !is_object && owner != functional() && !is_programs) return;
  const Id id = id_of(kind, owner, in.name);
  if (is_stored && PyBool_Check(value) && !is_programs)
    write(kind, owner, in.name, text_of(in.name));
  const bool is_new = seen_switches_.insert(id).second;
  if (is_stored) std::erase_if(switches_, [&id](const Switch& each) { return each.id == id; });
  if (is_stored || !is_new) return;
  PyObject* module = kind == Kind::kEntry ? PyDict_GetItemString(owner, "__name__") : nullptr;
  const std::string of = kind == Kind::kAttribute ? type_name(type)
                         : is_setting             ? "a setting of torch's"
                         : module != nullptr      ? text_of(module)
                                                  : "";
  Slot slot{kind, of + "." + text_of(in.name), Root::guarding(roots_, owner),
            Root(roots_, in.name)};
  slot.place = locate();
  switches_.push_back({id, std::move(slot), borrowed(value)});
}

namespace {

/// The name of an attribute, which may be of a subclass of str's (enum.StrEnum), as a str.
py::object as_text(PyObject* name) {
  if (!PyUnicode_Check(name) || PyUnicode_CheckExact(name)) return borrowed(name);
  PyObject* text = PyUnicode_FromObject(name);
  PyUnicode_InternInPlace(&text);
  return stolen(text);
}

}  // namespace

void Watcher::load_attribute(PyObject* object, PyObject* its_name) {
  const py::object text = as_text(its_name);
  PyObject* const name = text.ptr();
  if (PyModule_Check(object)) {
    PyObject* dict = PyModule_GetDict(object);
    const bool is_of_own_class = is_heap(Py_TYPE(object)) && !is_torchs(Py_TYPE(object));
    if (is_of_own_class) load_of_instance(object, name);
    read(Kind::kClass, object, nullptr, path_of(object) + ".__class__");
    read(Kind::kEntry, dict, name, path_of(object) + "." + text_of(name));
    if (PyDict_GetItemWithError(dict, name) == nullptr) {
      const py::object asks = interned("__getattr__");
      read(Kind::kEntry, dict, asks.ptr(), path_of(object) + ".__getattr__");
      PyObject* const asked = PyDict_GetItemWithError(dict, asks.ptr());
      if (asked != nullptr && !PyFunction_Check(asked)) {
        mark(asked, path_of(object) + ".__getattr__");
        if (is_cache_of_functools(asked)) {
          refuse("the step reads `" + text_of(name) + "` of `" + path_of(object) +
                 "`, whose __getattr__ is under functools.lru_cache: what it gives may be of a "
                 "call before");
        }
        load_callable(asked);
      }
    }
  } else if (PyType_Check(object)) {
    load_of_class(object, name);
  } else if (PyType_IsSubtype(Py_TYPE(object), &PySuper_Type) != 0) {
    load_of_super(object, name);
  } else {
    load_of_instance(object, name);
    // code of C's asks another object for what it does not have itself
    const bool has_none = _PyType_Lookup(Py_TYPE(object), name) == nullptr;
    if (has_none && PyMethod_Check(object)) load_attribute(PyMethod_GET_FUNCTION(object), name);
    if (has_none && Py_TYPE(object) == &Py_GenericAliasType)
      load_attribute(member(object, "__origin__").ptr(), name);
  }
}

void Watcher::load_imported(PyObject* name, bool is_found) {
  PyObject* modules = PyImport_GetModuleDict();
  const std::string whole = text_of(name);
  for (std::size_t end = whole.find('.');; end = whole.find('.', end + 1)) {
    const auto key = interned(whole.substr(0, end).c_str());
    // a relative one is known by another name, and its package is
    if (!is_found || PyDict_GetItemWithError(modules, key.ptr()) != nullptr)
      read(Kind::kEntry, modules, key.ptr(), text_of(key.ptr()));
    if (end == std::string::npos) return;
  }
}

void Watcher::load_of_frame(PyObject* frame, PyObject* name) {
  const std::string attribute = text_of(name);
  if (attribute == "f_globals" || attribute == "f_builtins") {
    mark(member(frame, attribute.c_str()).ptr(), attribute);
  } else if (attribute == "f_back") {
    const py::object caller = member(frame, attribute.c_str());
    if (caller && PyFrame_Check(caller.ptr()))
      refuse_outer(reinterpret_cast<PyFrameObject*>(caller.ptr()));
  } else if (exists(frame) && attribute != "f_code") {
    refuse_running(path_of(frame), attribute);
  }
}

void Watcher::refuse_running(const std::string& path, const std::string& attribute) {
  refuse("the step reads `" + path + "." + attribute + "`, the state of code that has not ended");
}

void Watcher::refuse_outer(PyFrameObject* frame) {
  const auto code_of = [](const py::object& at) {
    return stolen(
        reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(at.ptr()))));
  };
  for (py::object inner = borrowed(reinterpret_cast<PyObject*>(PyEval_GetFrame())); inner;) {
    if (whose(reinterpret_cast<PyCodeObject*>(code_of(inner).ptr())) == Whose::kSteptapes) break;
    if (inner.ptr() == reinterpret_cast<PyObject*>(frame)) return;
    inner = stolen(reinterpret_cast<PyObject*>(
        PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(inner.ptr()))));
  }
  refuse("the step looks at the frames of those that called it");
}

void Watcher::load_handled() {
  static PyObject* const asks = imported("sys", "exc_info");
  const py::object handled = handled_exception();
  if (handled.ptr() != handled_) return;
  read(Kind::kHandled, asks, nullptr, "sys.exc_info()[1]");
}

void Watcher::load_of_instance(PyObject* object, PyObject* name) {
  if (PyFrame_Check(object)) return load_of_frame(object, name);
  const bool is_suspended =
      PyGen_Check(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object);
  if (is_suspended && exists(object) && view_of(name).find("_code") == std::string_view::npos &&
      !view_of(name).starts_with("__"))
    refuse_running(path_of(object), text_of(name));
  PyTypeObject* type = Py_TYPE(object);
  const std::string path = path_of(object) + "." + text_of(name);
  if (is_heap(type)) {
    read(Kind::kAttribute, reinterpret_cast<PyObject*>(type), name,
         type_name(type) + "." + text_of(name));
    load_methods(object);
  }
  PyObject* found = _PyType_Lookup(type, name);
  if (exists(object) && keeps_to_itself(type) && !view_of(name).starts_with("__"))
    return refuse_incomparable("reads or writes an attribute of", object);
  if (found != nullptr) load_methods(found);  // it may be a descriptor
  if (found != nullptr && !PyFunction_Check(found)) load_wrapped(found, "__wrapped__");
  const bool gives_way = found == nullptr || Py_TYPE(found)->tp_descr_set == nullptr;
  if (found == nullptr && ask_own(object, "__getattr__", {object, name})) return;
  if (is_tensor(object)) {
    PyObject** dict = _PyObject_GetDictPtr(object);
    const bool holds = gives_way && dict != nullptr && *dict != nullptr &&
                       PyDict_GetItemWithError(*dict, name) != nullptr;
    load_of_tensor(object, name, path);
    if (given_.contains(object)) {
      // which it has is compared
      if (!holds && text_of(name) != "__dict__") return;
      return refuse("the step reads the attribute `" + text_of(name) +
                    "` of a tensor that it is given, which is another one in each call");
    }
    if (text_of(name) == "__dict__") mark(dict_made_of(object), path);
    if (holds || (gives_way && found == nullptr)) {
      if (PyObject* made = dict_made_of(object)) read(Kind::kEntry, made, name, path);
    }
    return;
  }
  if (!exists(object)) {
    PyObject* dict = gives_way ? dict_from_outside(object) : nullptr;
    if (dict != nullptr) read(Kind::kEntry, dict, name, path);
    return;
  }
  class_of(object);
  if (is_thread_local(object)) {
    look_at_thread(path);
    return read(Kind::kEntry, load_namespace(object), name, path);
  }
  const bool is_computed = found != nullptr && Py_TYPE(found)->tp_descr_get != nullptr &&
                           !PyFunction_Check(found) && !is_member(found);
  if (is_computed && !is_fixed(object) && is_made_of_torchs_class(type)) load_given(object);
  if (is_array(object) && view_of(name) == "flags")
    return refuse_incomparable("reads or writes an attribute of", object);
  if (is_array(object) && !is_heap(Py_TYPE(object))) return load_content(object);
  if (!is_fixed(object) && has_own_lookup(type, false))
    return refuse_incomparable("reads or writes an attribute of", object);
  if (!gives_way) {
    if (PyType_IsSubtype(Py_TYPE(found), &PyProperty_Type) != 0) {
      const py::object get = member(found, "fget");
      if (get && !PyFunction_Check(get.ptr())) {
        mark(get.ptr(), path);
        call_own(get.ptr(), {object});
      }
    }
    if (text_of(name) == "__dict__") load_namespace(object);
    const bool is_of_c =
        Py_TYPE(found) == &PyMemberDescr_Type || Py_TYPE(found) == &PyGetSetDescr_Type;
    if (is_of_c && text_of(name) != "__class__") read(Kind::kMember, object, found, path);
    // a named tuple's items are fixed; of the other ones of C's nobody knows what they give
    const bool is_known = is_of_c || PyTuple_Check(object) ||
                          PyType_IsSubtype(Py_TYPE(found), &PyProperty_Type) != 0 ||
                          is_got_by_python(found);
    if (!is_known) refuse_incomparable("reads or writes an attribute of", object);
    return;
  }
  if (PyObject* dict = load_namespace(object)) read(Kind::kEntry, dict, name, path);
}

void Watcher::refuse_incomparable(const std::string& does, PyObject* object) {
  refuse("the step " + does + " `" + path_of(object) + "`, a " + type_name(object) +
         " whose content cannot be compared");
}

void Watcher::load_of_tensor(PyObject* tensor, PyObject* name, const std::string& path) {
  const std::string of = text_of(name);
  const bool is_given = given_.contains(tensor);
  const bool is_own = of == "_version" || of == "_cdata";
  if (is_own || (is_given && (of == "_base" || of == "_is_view"))) {
    refuse("the step reads `" + of +
           "` of a tensor, which may be another one for the same tensor "
           "in the next call");
  } else if (of == "retains_grad") {
    if (!is_given) return read(Kind::kMember, tensor, _PyType_Lookup(Py_TYPE(tensor), name), path);
    refuse("the step reads `retains_grad` of a tensor that it is given");
  } else if (of == "grad" && !tensor_of(tensor).requires_grad()) {
    if (!is_given) return read(Kind::kMember, tensor, _PyType_Lookup(Py_TYPE(tensor), name), path);
    refuse("the step reads `grad` of a tensor that it is given and that does not require grad");
  }
}

PyObject* Watcher::load_namespace(PyObject* object) {
  // as that of a subclass of threading.local, which is another one in each thread
  const bool is_usual = is_thread_local(object) || is_tensor(object) || is_fixed(object) ||
                        Py_TYPE(object) == &PySuper_Type || !has_own_lookup(Py_TYPE(object), false);
  if (!is_usual && exists(object)) refuse_incomparable("reads or writes an attribute of", object);
  PyObject* dict = dict_made_of(object);
  const bool was_there = is_tensor(object) ? !given_.contains(object) : exists(object);
  if (dict != nullptr && was_there)
    read(Kind::kNamespace, object, nullptr, path_of(object) + ".__dict__");
  return dict;
}

bool Watcher::ask_own(PyObject* object, const char* method, std::vector<PyObject*> arguments) {
  if (!is_heap(Py_TYPE(object)) || is_tensor(object)) return false;
  PyObject* own = in_class(Py_TYPE(object), method);
  const bool is_of_c = own != nullptr && (Py_TYPE(own) == &PyMethodDescr_Type ||
                                          Py_TYPE(own) == &PyWrapperDescr_Type);
  // what object itself does is what is read and written here
  PyObject* usual = in_class(&PyBaseObject_Type, method);
  // of a class of C's that looks its attributes up as object does, or in a way of its own
  const bool is_same = is_of_c && view_of(PyDescr_NAME(own)) == method;
  if (!is_of_c || own == usual || is_same) return false;
  return call_own(own, std::move(arguments));
}

void Watcher::refuse_member(PyObject* object, PyObject* member) {
  if (!exists(object)) return;
  refuse("the step sets `" + text_of(PyDescr_NAME(member)) + "` of `" + path_of(object) +
         "`, which a replay does not do");
}

bool Watcher::is_done_by_code(PyObject* object, const char* method) {
  PyObject* const own = in_class(Py_TYPE(object), method);
  if (own == nullptr || is_tensor(object)) return false;
  if (PyFunction_Check(own))  // what torch's does is known
    return whose(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(own))) != Whose::kTorchs;
  return !PyCFunction_Check(own) && Py_TYPE(own) != &PyMethodDescr_Type &&
         Py_TYPE(own) != &PyWrapperDescr_Type;
}

void Watcher::store_attribute(PyObject* object, PyObject* its_name, const char* method) {
  const py::object text = as_text(its_name);
  PyObject* const name = text.ptr();
  if (method != nullptr && !PyType_Check(object) && ask_own(object, method, {object, name})) return;
  load_methods(object);
  if (method != nullptr && is_done_by_code(object, method)) return;
  load_descriptor(Py_TYPE(object), name);
  // a descriptor may come there
  if (is_heap(Py_TYPE(object)) && !is_tensor(object) && !is_part_of_model(object)) {
    read(Kind::kAttribute, reinterpret_cast<PyObject*>(Py_TYPE(object)), name,
         type_name(object) + "." + text_of(name));
  }
  if (PyModule_Check(object) && exists(object))
    read(Kind::kClass, object, nullptr, path_of(object) + ".__class__");
  if (is_thread_local(object) && exists(object)) {
    look_at_thread(path_of(object) + "." + text_of(name));
    return write(Kind::kEntry, load_namespace(object), name, path_of(object) + "." + text_of(name));
  }
  if (!PyType_Check(object) && !PyModule_Check(object) && !is_tensor(object) && exists(object) &&
      has_own_lookup(Py_TYPE(object), true)) {
    return refuse_incomparable("reads or writes an attribute of", object);
  }
  if (is_part_of_model(object)) {
    writes_.emplace(text_of(name), locate());
    // a replay assigns it again, though it may have found this very value while it was recorded
    PyObject* dict = modules_.contains(object) ? dict_of(object) : nullptr;
    if (dict == nullptr) return;
    read(Kind::kNamespace, object, nullptr, path_of(object) + ".__dict__");
    write(Kind::kEntry, dict, name, path_of(object) + "." + text_of(name));
    return;
  }
  if (PyModule_Check(object)) {
    return write(Kind::kEntry, PyModule_GetDict(object), name,
                 path_of(object) + "." + text_of(name));
  }
  if (PyType_Check(object)) {
    PyObject* of_meta = _PyType_Lookup(Py_TYPE(object), name);
    if (is_member(of_meta)) return refuse_member(object, of_meta);
    return write(Kind::kAttribute, object, name, type_name(as_type(object)) + "." + text_of(name));
  }
  PyObject* found = _PyType_Lookup(Py_TYPE(object), name);
  if (PyCell_Check(object) && !own_cells_.contains(object))
    return write(Kind::kCell, object, nullptr, text_of(name));
  const std::string path = path_of(object) + "." + text_of(name);
  if (!is_tensor(object) && !exists(object)) {
    if (text_of(name) == "__dict__") got_dicts_.insert(object);
    const bool is_set_by_class = found != nullptr && Py_TYPE(found)->tp_descr_set != nullptr;
    PyObject* dict = is_set_by_class ? nullptr : dict_from_outside(object);
    if (dict != nullptr) write(Kind::kEntry, dict, name, path);
    return change_given(object);
  }
  if (found != nullptr && Py_TYPE(found)->tp_descr_set != nullptr) {
    // what it is set to may be what it found while it was recorded
    if (is_tensor(object)) return load_of_tensor(object, name, path);
    if (Py_TYPE(found) == &PyMemberDescr_Type) return write(Kind::kMember, object, found, path);
    if (is_member(found)) return refuse_member(object, found);
    if (is_set_by_c(found)) refuse_incomparable("writes an attribute of", object);
    return;
  }
  if (given_.contains(object)) {
    return refuse("the step sets the attribute `" + text_of(name) +
                  "` of a tensor that it is given, which is another one in each call");
  }
  if (PyObject* dict = load_namespace(object)) write(Kind::kEntry, dict, name, path);
}

PyObject* Watcher::dict_from_outside(PyObject* object) const {
  PyObject* dict = got_dicts_.contains(object) ? dict_of(object) : nullptr;
  return dict != nullptr && exists(dict) ? dict : nullptr;
}

void Watcher::take_entry(PyObject* dict, PyObject* key, const std::string& path) {
  if (PyDict_Check(dict) && !has_added(dict, key)) read(Kind::kKeys, dict, nullptr, path);
}

bool Watcher::has_added(PyObject* dict, PyObject* key) const {
  return has_written(dict, key) &&
         !slots_->held_some(noted_.find(id_of(Kind::kEntry, dict, key))->second);
}

bool Watcher::has_written(PyObject* dict, PyObject* key) const {
  const auto noted = noted_.find(id_of(Kind::kEntry, dict, key));
  return noted != noted_.end() && slots_->slot(noted->second).is_written;
}

void Watcher::delete_attribute(PyObject* object, PyObject* its_name, const char* method) {
  const py::object text = as_text(its_name);
  PyObject* const name = text.ptr();
  PyObject* dict = PyType_Check(object) ? nullptr
                   : exists(object)     ? dict_of(object)
                                        : dict_from_outside(object);
  if (dict != nullptr) take_entry(dict, name, path_of(object) + ".__dict__");
  store_attribute(object, name, method);
}

void Watcher::load_item(PyObject* object, PyObject* key) {
  load_methods(key);
  if (is_tensor(object)) load_given(key);  // a list, or a tuple of them
  if (!is_tensor(object)) look_which(key, object);
  look_up(object, "__getitem__");
  if (PyType_Check(object)) {
    load_of_class(object, interned("__class_getitem__").ptr());
  }
  if (is_array(object)) look_at_memory(object);
  if (PyTuple_Check(object) || !exists(object)) return;
  if (has_items_of_dict(object)) {
    if (PyObject* own = PyDict_Check(object) ? own_key(object, key) : nullptr) key = own;
    // what its own code says is equal may stand there
    if (!is_plain_key(key) && find_entry(object, key) == nullptr) return load_content(object);
    read(Kind::kEntry, object, key, path_of_item(object, key));
    if (find_entry(object, key) == nullptr && type_name(object) == "collections.defaultdict") {
      write(Kind::kEntry, object, key, path_of_item(object, key));
      load_attribute(object, interned("default_factory").ptr());
      const py::object factory = factory_of(object);
      if (factory && factory.ptr() != Py_None) call_own(factory.ptr(), {});
    }
  } else if ((PyList_Check(object) || is_deque(object)) && PyLong_Check(key)) {
    load_item_at(object, key);
  } else if (is_container(object)) {
    load_content(object);
  } else {
    refuse_opaque(object);
  }
}

namespace {

/// Whether code of C's gives what is in the object: items in some way, or its memory.
bool gives_items(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  const auto is_of_c = [type](const char* named) {
    PyObject* const found = in_class(type, named);
    return found != nullptr &&
           (Py_TYPE(found) == &PyWrapperDescr_Type || Py_TYPE(found) == &PyMethodDescr_Type ||
            PyInstanceMethod_Check(found));  // as pybind11 makes them
  };
  PyObject* const own_buffer = in_class(type, "__buffer__");
  const bool has_memory = type->tp_as_buffer != nullptr &&
                          type->tp_as_buffer->bf_getbuffer != nullptr &&
                          (own_buffer == nullptr || !PyFunction_Check(own_buffer));
  return has_memory || is_of_c("__iter__") || is_of_c("__getitem__") || is_of_c("__len__");
}

}  // namespace

void Watcher::refuse_opaque(PyObject* object) {
  if (!exists(object) || is_tensor(object) || is_fixed(object) || is_scalar_of_numpy(object))
    return;
  const std::string& type = type_name(object);
  const bool is_constant = PyTuple_Check(object) || PyUnicode_Check(object) ||
                           PyBytes_Check(object) || PyRange_Check(object) ||
                           type.starts_with("numpy.dtype") || type.starts_with("re.");
  if (!is_constant && gives_items(object)) refuse_incomparable("reads", object);
}

void Watcher::load_index(PyObject* object, PyObject* key) {
  if (PyDict_Check(object) || is_tensor(object)) return;
  if (is_of_c(Py_TYPE(object), "__getitem__")) load_given(key);
}

void Watcher::load_stored(PyObject* object, PyObject* key, PyObject* value) {
  if (PyList_Check(object) || PyDict_Check(object) || is_deque(object)) {
    if (!PyList_Check(object) || !PySlice_Check(key)) return;
    look_up(value, "__iter__");
    load_content(value);
  } else if (is_of_c(Py_TYPE(object), "__setitem__")) {  // an array's
    load_given(value);
  }
}

void Watcher::store_item(PyObject* object, PyObject* key, const char* method) {
  load_methods(key);
  if (!is_tensor(object)) look_which(key, object);
  look_up(object, "__setitem__");
  if (method != nullptr && is_done_by_code(object, method)) return;
  if (!exists(object)) return change_given(object);
  if (PyDict_Check(object)) {
    PyObject* own = own_key(object, key);
    if (own == nullptr) {
      refuse("the step writes an entry of `" + path_of(object) + "` under a " + type_name(key) +
             ", whose own code says which keys are equal: texts, numbers and tuples of them "
             "can be compared");
      return;
    }
    // where there is none, the step's own comes there
    if (own != key) read(Kind::kHas, object, own, path_of_item(object, own));
    write(Kind::kEntry, object, own, path_of_item(object, own));
  } else if (PyList_Check(object) && PyLong_Check(key) && !held_at(object, key)) {
    read(Kind::kItem, object, key, path_of_item(object, key));  // it throws
  } else if ((PyList_Check(object) && PyLong_Check(key)) ||
             (is_deque(object) && !is_from_the_end(key) && held_at(object, key))) {
    if (store_in_changed(object, key)) return;
    look_at_ends(object, key);
    write(Kind::kItem, object, key, path_of_item(object, key));
  } else if (is_container(object)) {
    change(object, path_of(object));
  } else if (!is_tensor(object) && is_of_c(Py_TYPE(object), "__setitem__")) {
    refuse_incomparable("writes an item of", object);
  }
}

std::unordered_set<PyObject*> Watcher::put_into(PyObject* container) const {
  std::unordered_set<PyObject*> own;
  for (const auto* written : {&written_entries_, &written_items_}) {
    const auto found = written->find(container);
    if (found == written->end()) continue;
    for (const std::size_t at : found->second) own.insert(slots_->slot(at).value().ptr());
  }
  const auto content = changed_content(container);
  const Py_ssize_t size = content && slots_->slot(*content).is_appended_to ? size_of(container) : 0;
  const Py_ssize_t added = content ? std::min(size, slots_->slot(*content).appended) : 0;
  for (Py_ssize_t at = size - added; at < size; ++at)
    own.insert(held_at(container, py::int_(at).ptr()).ptr());
  return own;
}

void Watcher::mark_items(PyObject* container) {
  const std::string path = path_of(container);
  const std::unordered_set<PyObject*> own = put_into(container);
  if (PyDict_Check(container)) {
    for (const auto& [key, item] : entries_of(container)) {
      mark(key, path);
      if (!own.contains(item)) mark(item, path_of_item(container, key));
    }
    return;
  }
  if (!PyList_Check(container) && !PyTuple_Check(container) && is_array(container)) {
    std::vector<PyObject*> held;
    add_held(container, held);
    for (PyObject* each : held) mark(each, path);
    return;
  }
  const py::object items = list_of(container);
  constexpr std::size_t kLongestPath = 400;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(items.ptr(), i);
    if (own.contains(item)) continue;
    mark(item, path.size() < kLongestPath ? path + "[" + std::to_string(i) + "]" : path);
  }
}

PyObject* Watcher::without_proxy(PyObject* object) {
  if (object != nullptr && Py_TYPE(object) == &PyDictProxy_Type) {
    std::vector<PyObject*> held;
    add_held(object, held);
    if (held.size() != 1 || !PyDict_Check(held.front())) return object;
    if (exists(object)) mark(held.front(), path_of(object));
    return held.front();
  }
  if (object == nullptr || !PyWeakref_CheckProxy(object)) return object;
  if (exists(object)) read(Kind::kReferent, object, nullptr, path_of(object));
  return referent_of(object);
}

/// Tensors may lie over an array of the host's, made here or before: `t.numpy()`, `from_numpy`.
void Watcher::look_at_memory(PyObject* array) {
  recorder::FrontendHints* const hints = recorder::FrontendHints::current();
  Py_buffer view;
  if (hints == nullptr || PyObject_GetBuffer(array, &view, PyBUF_FULL_RO) != 0)
    return PyErr_Clear();
  auto first = reinterpret_cast<std::uintptr_t>(view.buf);
  std::uintptr_t end = first + static_cast<std::uintptr_t>(view.itemsize);
  if (view.strides == nullptr) end = first + static_cast<std::uintptr_t>(view.len);
  for (int i = 0; view.strides != nullptr && i < view.ndim; ++i) {
    const Py_ssize_t reach = (view.shape[i] - 1) * view.strides[i];
    (reach < 0 ? first : end) += static_cast<std::uintptr_t>(reach);
  }
  if (view.len != 0) hints->note_looked_at(first, end, path_of(array));
  PyBuffer_Release(&view);
}

void Watcher::load_content(PyObject* container) {
  container = without_proxy(container);
  load_methods(container);
  if (is_array(container)) look_at_memory(container);
  if (is_iterator(container)) return load_iterator(container);
  if (!exists(container)) return;
  if (!is_container(container)) return refuse_opaque(container);
  if (is_array(container)) {
    const bool is_large = !bytes_of_array(container);
    if (is_large && may_be_argument(container)) {
      moving_.note(path_of(container), container, nullptr);  // the next recording is given it
      return;
    }
    if (is_large) {
      refuse("`" + path_of(container) + "` is a " + type_name(container) +
             " too large to be compared before each replay");
      return;
    }
  } else if (size_of(container) > kMostItems) {
    refuse("`" + path_of(container) + "` holds more items than are compared before each replay");
    return;
  }
  if (PyDict_Check(container) && has_written_entries(container)) {
    // what the step itself has put there is nothing that it depends on
    read(Kind::kKeys, container, nullptr, path_of(container));
    for (const auto& [key, value] : entries_of(container))
      read(Kind::kEntry, container, key, path_of_item(container, key));
    return;
  }
  if (load_window(container)) return;
  read(Kind::kContent, container, nullptr, path_of(container));
  mark_items(container);
}

bool Watcher::has_written_entries(PyObject* dict) const {
  bool has_some = false;
  for (const auto& [key, value] : entries_of(dict)) {
    if (!is_plain_key(key)) return false;
    has_some |= has_written(dict, key);
  }
  return has_some;
}

bool Watcher::store_in_changed(PyObject* sequence, PyObject* key) {
  const std::optional<std::size_t> content = changed_content(sequence);
  if (!content) return false;
  const Py_ssize_t at = PyNumber_AsSsize_t(key, nullptr);
  const bool is_appended_to = slots_->slot(*content).is_appended_to;
  if (is_appended_to && !position_before(sequence, at)) {
    // counted from the front it is one of those that the step adds while as few were there
    if (at >= 0) load_size(sequence);
    return true;
  }
  if (is_appended_to && at >= 0 && !is_bounded(sequence)) return false;
  change(sequence, path_of(sequence));
  return true;
}

void Watcher::look_at_ends(PyObject* sequence, PyObject* key) {
  const auto found = written_items_.find(sequence);
  if (found == written_items_.end()) return;
  const auto is_other = [&](std::size_t at) {
    return is_from_the_end(slots_->slot(at).key.get()) != is_from_the_end(key);
  };
  if (std::ranges::any_of(found->second, is_other)) load_size(sequence);
}

void Watcher::load_item_at(PyObject* sequence, PyObject* key) {
  look_at_ends(sequence, key);
  const Py_ssize_t at = PyNumber_AsSsize_t(key, nullptr);
  const std::optional<Py_ssize_t> before = position_before(sequence, at);
  // the items of a full queue move up as others are added
  if (is_bounded(sequence)) {
    if (before) load_content(sequence);
    return;
  }
  if (before) {
    const py::int_ place(*before);
    read(Kind::kItem, sequence, place.ptr(), path_of_item(sequence, place.ptr()));
  }
  // which one the step has appended, or that there is none, is a matter of how many there are
  if ((!before && at >= 0) || !held_at(sequence, key)) load_size(sequence);
}

void Watcher::load_size(PyObject* container) {
  if (!exists(container)) return;
  if (is_array(container)) return load_content(container);
  if (!is_container(container)) return refuse_opaque(container);
  // whether an entry that the step has assigned is one more
  if (written_entries_.contains(container))
    return read(Kind::kKeys, container, nullptr, path_of(container));
  read(Kind::kSize, container, nullptr, path_of(container) + ".size");
}

void Watcher::load_iterator(PyObject* iterator) {
  look_up(iterator, "__next__");
  // of a class of torch's, such as that of a DataLoader's batches, no code is watched
  const bool is_of_torchs = PyIter_Check(iterator) && is_made_of_torchs_class(Py_TYPE(iterator));
  if (!exists(iterator) || !(is_iterator(iterator) || is_of_torchs)) return;
  refuse("the step takes items from `" + path_of(iterator) + "`, a " + type_name(iterator) +
         " that was there before, whose content cannot be compared");
}

void Watcher::load_fixed(PyObject* value) {
  if (PyModule_Check(value) && gives_objects_ != 0) {
    refuse("the step gives the module `" + path_of(value) +
           "` to a function of C's, which may read any of it");
  }
  if (PyModule_Check(value)) return;
  if (is_part_of_model(value)) return load_part_of_model(value);
  if (!PyType_Check(value)) {
    for (const auto& [name, held] : attributes_of(value)) {
      load_attribute(value, name);
      FollowedNumbers::current().escape(held);
    }
    return;
  }
  for (PyTypeObject* base : bases_of(as_type(value))) {
    if (!is_heap(base) || is_torchs_class(base)) continue;
    load_members(reinterpret_cast<PyObject*>(base));
    const py::object dict = dict_of_type(base);
    for (const auto& [name, held] : entries_of(dict.ptr())) FollowedNumbers::current().escape(held);
  }
}

void Watcher::load_part_of_model(PyObject* part) {
  std::vector<PyObject*> open{part};
  std::unordered_set<PyObject*> seen{part};  // a module may stand in itself
  while (!open.empty()) {
    PyObject* const next = open.back();
    open.pop_back();
    for (const auto& [name, held] : attributes_of(next)) {
      if (is_tensor(next)) load_attribute(next, name);
      FollowedNumbers::current().escape(held);
      if (is_tensor(next) || !PyDict_Check(held)) continue;
      for (const auto& [path, registered] : entries_of(held)) {
        const bool leads_on = is_tensor(registered) || is_part_of_model(registered);
        if (leads_on && seen.insert(registered).second) open.push_back(registered);
      }
    }
  }
}

void Watcher::load_object(PyObject* value, std::vector<PyObject*>& more) {
  read_module(value);
  if (is_fixed(value)) return load_fixed(value);
  PyTypeObject* type = Py_TYPE(value);
  const bool is_known = exists(value);
  std::vector<PyObject*> held;
  for (const auto& [name, attribute] : attributes_of(value)) held.push_back(attribute);
  if (!is_known) more.insert(more.end(), held.begin(), held.end());
  for (PyTypeObject* base : bases_of(type)) {
    if (!is_heap(base) || is_torchs_class(base)) continue;
    if (is_known) load_members(reinterpret_cast<PyObject*>(base));
    const py::object dict = dict_of_type(base);
    for (const auto& [name, member] : entries_of(dict.ptr())) {
      held.push_back(member);
      if (Py_TYPE(member) != &PyMemberDescr_Type) continue;
      if (is_known) read(Kind::kMember, value, member, path_of(value) + "." + text_of(name));
      if (const py::object in_slot = held_at(value, member)) {
        held.push_back(in_slot.ptr());
        more.push_back(in_slot.ptr());
      }
    }
  }
  for (PyObject* each : held) FollowedNumbers::current().escape(each);
  if (PyExceptionInstance_Check(value)) {
    load_attribute(value, interned("args").ptr());
    more.push_back(reinterpret_cast<PyBaseExceptionObject*>(value)->args);
  }
  if (!is_known || type_name(value).starts_with("torch.")) return;
  read(Kind::kWhole, value, nullptr, path_of(value));
  if (!slots_->is_compared(note(Kind::kWhole, value, nullptr, path_of(value), true))) {
    refuse("`" + path_of(value) +
           "` is given to code of C's and holds more than is "
           "compared before each replay");
  }
}

template <typename Visit>
void Watcher::for_each_in(PyObject* value, Visit&& visit) {
  std::vector<PyObject*> open;
  std::unordered_set<PyObject*> seen;
  for (PyObject* next = value; next != nullptr;) {
    const bool is_known = is_atom(next) || (!is_tensor(next) && !seen.insert(next).second);
    if (!is_known && visit(next, open) && !leads_nowhere(next)) {
      std::vector<PyObject*> held;
      add_held(next, held);
      const auto own = exists(next) ? put_into(next) : std::unordered_set<PyObject*>();
      for (PyObject* each : held) {
        if (each == nullptr || is_atom(each)) continue;
        if (exists(next) && !own.contains(each)) mark(each, path_of(next));
        open.push_back(each);
      }
    }
    next = open.empty() ? nullptr : open.back();
    if (next != nullptr) open.pop_back();
  }
}

void Watcher::load_objects(PyObject* value) {
  for_each_in(value, [this](PyObject* each, std::vector<PyObject*>& more) {
    read_module(each);
    if (PyWeakref_Check(each)) {  // what calls one, or goes through a proxy, finds the object
      if (exists(each)) read(Kind::kReferent, each, nullptr, path_of(each));
      PyObject* const object = referent_of(each);
      if (object != Py_None) mark(object, path_of(each));
      more.push_back(object);
      return false;
    }
    if (is_tensor(each) || is_fixed(each)) {
      load_fixed(each);
      return false;
    }
    if (is_container(each)) load_content(each);
    if (is_made_by_class(Py_TYPE(each)) || type_name(each) == "types.SimpleNamespace") {
      load_object(each, more);
    }
    return true;
  });
}

void Watcher::load_state(PyObject* object, std::vector<PyObject*>& more) {
  PyObject* dict = dict_of(object);
  if (dict == nullptr) return;
  class_of(object);
  states_.try_emplace(object);
  const bool is_whole = is_torchs_class(Py_TYPE(object));
  read(Kind::kKeys, dict, nullptr, path_of(object) + ".__dict__");  // a method may come there
  for (const auto& [key, item] : entries_of(dict)) {
    if (PyWeakref_Check(item)) continue;  // of what is kept, such as a transform's inverse
    if (!is_whole && !names_of_torchs(Py_TYPE(object)).contains(text_of(key))) continue;
    const std::string path = path_of(object) + "." + text_of(key);
    read(Kind::kState, dict, key, path);
    for_each_in(item, [&](PyObject* each, std::vector<PyObject*>& /*more*/) {
      if (is_container(each) || PyTuple_Check(each)) return true;
      if (is_tensor(each) || is_fixed(each) || !is_made_of_torchs_class(Py_TYPE(each)))
        return false;
      mark(each, path);
      more.push_back(each);
      return false;
    });
  }
}

void Watcher::load_whole(PyObject* value) {
  read_module(value);
  FollowedNumbers::current().escape(value);
  load_given(value);
}

void Watcher::load_deep(PyObject* value, bool compares) {
  for_each_in(value, [this, compares](PyObject* each, std::vector<PyObject*>& more) {
    if (is_tensor(each)) return false;
    if (compares) look_at_reference(each);
    if (type_name(each) == "types.SimpleNamespace" || PyExceptionInstance_Check(each)) {
      load_object(each, more);
      return false;
    }
    load_content(each);
    return true;
  });
}

void Watcher::look_at_references(PyObject* value) {
  for_each_in(value, [this](PyObject* each, std::vector<PyObject*>& /*more*/) {
    look_at_reference(each);
    return !is_tensor(each);
  });
}

std::size_t Watcher::count_containers(PyObject* value) {
  std::size_t count = 0;
  for_each_in(value, [&](PyObject* each, std::vector<PyObject*>& /*more*/) {
    if (is_tensor(each)) return false;
    count += exists(each) && is_compared_by_content(each) ? 1 : 0;
    return true;
  });
  return count;
}

void Watcher::load_given(PyObject* value) {
  for_each_in(value, [this](PyObject* each, std::vector<PyObject*>& more) {
    if (is_tensor(each)) return false;
    if (exists(each) && is_made_of_torchs_class(Py_TYPE(each)) && !is_fixed(each)) {
      load_state(each, more);
      return false;
    }
    load_content(each);
    return true;
  });
}

}  // namespace steptape::python::watch
