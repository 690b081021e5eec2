#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <string_view>

#include "python/engine/structure.h"
#include "python/engine/watch/call.h"

/// What code of C's does with what it is given, which no instruction shows. Functions that read
/// what they are given in a way of their own have a row here; of any other the arguments count as
/// read.
namespace steptape::python::watch {
namespace {

/// Functions that tell where an object lies, by which code of C's may sort or look up.
constexpr std::string_view kTellsAddress = "id hash repr str ascii format";
/// What these give, or a set that is made so, may show where an object lies.
constexpr std::string_view kShowsAddress = "str repr ascii format print set frozenset";

/// Functions and methods that tell an object from others, by itself or as an item.
constexpr std::string_view kTellsWhich =
    "id hash repr str ascii format is_ is_not eq ne contains indexOf countOf index count remove "
    "discard __eq__ __ne__ __contains__ __hash__ __repr__ __str__";

/// Methods of containers that change what they hold, and say nothing of what it was.
constexpr std::string_view kChanges =
    "append appendleft extend extendleft insert add update clear discard sort reverse rotate "
    "difference_update intersection_update symmetric_difference_update __setitem__ __delitem__ "
    "__ior__ __iadd__ __setslice__ move_to_end remove";
/// Those that do, and say so.
constexpr std::string_view kTakes = "pop popleft popitem setdefault";
/// Functions that look at no item of what they are given, or give it on as it is.
constexpr std::string_view kKeepsHandsOff = "id callable hash print super breakpoint globals";
/// Functions that look at classes alone; those of _abc for an abstract one.
constexpr std::string_view kAsksForClass =
    "isinstance issubclass _abc_instancecheck _abc_subclasscheck";
/// Functions that show a value, or take it apart: attributes of objects are read, too.
constexpr std::string_view kTakesApart =
    "repr str format ascii dumps dump format_map pformat deepcopy";
/// Methods and classes of Python's that keep what they are given as it is.
constexpr std::string_view kKeeps = "append appendleft extend insert setdefault __setitem__";
/// Iterators that give the items of what they are given.
constexpr std::string_view kHandsOn =
    "zip enumerate reversed itertools.chain itertools.cycle itertools.islice itertools.pairwise "
    "itertools.zip_longest";
/// Methods that give items of their container.
constexpr std::string_view kGives =
    "items values keys copy get pop popleft popitem setdefault __iter__ __getitem__ __len__";
constexpr std::string_view kShows = "print write writelines flush";

std::string name_of(PyObject* callee) {
  const py::object found = member(callee, "__name__");
  return found ? text_of(found.ptr()) : type_name(callee);
}

bool makes_dict(PyObject* callee) {
  return as_type(callee) == &PyDict_Type || as_type(callee) == &PyODict_Type;
}
bool makes_sequence(PyObject* callee) {
  return as_type(callee) == &PyTuple_Type || as_type(callee) == &PyList_Type;
}

/// Of what a dict is made of, the keys are compared.
void escape_keys(PyObject* pairs) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  const auto escape_first = [&numbers](PyObject* pair) {
    const bool is_pair = PyList_Check(pair) || PyTuple_Check(pair);
    if (is_pair && PySequence_Fast_GET_SIZE(pair) == 0) return;
    numbers.escape(is_pair ? PySequence_Fast_GET_ITEM(pair, 0) : pair);
  };
  if (PyDict_Check(pairs)) return;
  std::vector<PyObject*> held;
  if (PyList_Check(pairs) || PyTuple_Check(pairs)) {
    PyObject** items = PySequence_Fast_ITEMS(pairs);
    held.assign(items, items + PySequence_Fast_GET_SIZE(pairs));
  } else if (Py_TYPE(pairs) == &PyZip_Type) {
    add_held(pairs, held);  // its iterators, and its newest pair
  } else {
    held.push_back(pairs);
  }
  std::ranges::for_each(held, escape_first);
}

/// Not so a hash of hashlib's, which has an `update` too.
bool holds_items(PyObject* value) {
  return Py_TYPE(value)->tp_iter != nullptr || PySequence_Check(value) != 0;
}

/// Cython has a class of functions of its own, in each version.
bool is_function_of_cython(PyObject* value) {
  return std::string_view(Py_TYPE(value)->tp_name).ends_with("cython_function_or_method");
}

bool is_function_of_c(PyObject* value) {
  const std::string_view type = Py_TYPE(value)->tp_name;
  if (is_partial(value)) return calls_c(value);
  return PyCFunction_Check(value) || Py_TYPE(value) == &PyMethodDescr_Type ||
         Py_TYPE(value) == &PyWrapperDescr_Type || type == "method-wrapper" ||
         type.starts_with("operator.");
}

/// What an object, or its class, stores under a name; null where code computes it.
py::object stored_attribute(PyObject* object, PyObject* name) {
  PyObject* dict = PyModule_Check(object) ? PyModule_GetDict(object) : dict_of(object);
  PyObject* found = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, name);
  for (const char* kind : {"_modules", "_parameters", "_buffers"}) {
    if (found != nullptr || dict == nullptr || !is_part_of_model(object)) break;
    PyObject* registered = PyDict_GetItemString(dict, kind);
    if (registered != nullptr && PyDict_Check(registered))
      found = PyDict_GetItemWithError(registered, name);
  }
  if (found != nullptr) return borrowed(found);
  const bool is_class = PyType_Check(object) != 0;
  found = _PyType_Lookup(is_class ? as_type(object) : Py_TYPE(object), name);
  return found == nullptr || Py_TYPE(found)->tp_descr_get != nullptr ? py::object()
                                                                     : borrowed(found);
}

/// Whether code of C's makes something of what a class is called with, whoever sees it after that.
bool is_given_to_c(PyObject* type) {
  auto* made = as_type(type);
  PyObject* found = in_class(made, "__new__");
  return found != nullptr && PyCFunction_Check(found) && made->tp_new != PyBaseObject_Type.tp_new;
}

/// Whether a class has code of Python's for calls of its objects.
bool has_own_call(PyTypeObject* type) {
  PyObject* const found = in_class(type, "__call__");
  return found != nullptr && PyFunction_Check(found);
}

/// What code of C's calls where such an object is called, and by which name it holds that; null for
/// any other.
struct Wrapped {
  const char* name = nullptr;
  py::object function = {};
};
Wrapped wrapped_by(PyObject* callee) {
  PyTypeObject* const type = Py_TYPE(callee);
  if (has_own_call(type)) return {};
  const auto is_of = [type](PyTypeObject* known) { return PyType_IsSubtype(type, known) != 0; };
  const char* const name = is_of(&PyStaticMethod_Type)   ? "__func__"
                           : is_of(&Py_GenericAliasType) ? "__origin__"
                                                         : nullptr;
  return name == nullptr ? Wrapped() : Wrapped{name, member(callee, name)};
}

/// The name of the module that a function of C's is from, or "".
std::string module_of(PyObject* function) {
  // of what Cython has made it is an attribute
  const py::object module = PyCFunction_Check(function)
                                ? borrowed(reinterpret_cast<PyCFunctionObject*>(function)->m_module)
                                : member(function, "__module__");
  return module && PyUnicode_Check(module.ptr()) ? text_of(module.ptr()) : "";
}

/// Whether a module is of Python's library, NumPy, torch or steptape.
bool is_of_library(const std::string& module) {
  static PyObject* const known = [] {
    auto names = py::set(module_named("sys").attr("stdlib_module_names"));
    for (const char* name : {"numpy", "torch", "steptape", ""}) names.add(py::str(name));
    return names.release().ptr();
  }();
  const py::str package(module.substr(0, module.find('.')));
  return PySet_Contains(known, package.ptr()) != 0;
}

}  // namespace

void Watcher::called(PyObject* function) {
  if (outermost_ == nullptr && PyFunction_Check(function))
    outermost_ = PyFunction_GET_CODE(function);
  // operators of tensors, whoever replaces one: its class is made of torch.Tensor
  read(Kind::kMethods, ParameterClass, nullptr, "torch.Tensor's operators");
  awaited_.emplace_back();
  call(Call{.callee = function}, 4);
  awaited_.pop_back();
}

bool Watcher::call_own(PyObject* callee, std::vector<PyObject*> arguments) {
  call(Call{.callee = callee, .arguments = std::move(arguments)}, 4);
  return true;
}

GivenToCall given_to(const Instruction& in) {
  if (in.spread == nullptr) {
    const Py_ssize_t named = in.keywords == nullptr ? 0 : PyTuple_GET_SIZE(in.keywords);
    PyObject* const* first_named = in.arguments + in.count - named;
    return {{in.arguments, first_named}, {first_named, in.arguments + in.count}};
  }
  GivenToCall given;
  if (PyTuple_Check(in.spread) || PyList_Check(in.spread)) {
    PyObject** items = PySequence_Fast_ITEMS(in.spread);
    given.positional.assign(items, items + PySequence_Fast_GET_SIZE(in.spread));
  } else if (!leads_nowhere(in.spread)) {
    add_held(in.spread, given.positional);
  }
  if (in.spread_named != nullptr && PyDict_Check(in.spread_named)) {
    for (const auto& [key, value] : entries_of(in.spread_named)) given.named.push_back(value);
  }
  return given;
}

bool Watcher::call(const Instruction& in) {
  if (in.spread != nullptr) load_content(in.spread);
  if (in.spread_named != nullptr && PyDict_Check(in.spread_named)) load_content(in.spread_named);
  GivenToCall given = given_to(in);
  for (PyObject*& value : given.positional) value = without_proxy(value);
  Call made{.callee = without_proxy(in.callee),
            .arguments = std::move(given.positional),
            .named = std::move(given.named)};
  if (in.keywords != nullptr && in.spread == nullptr) {
    PyObject** names = &PyTuple_GET_ITEM(in.keywords, 0);
    made.names.assign(names, names + PyTuple_GET_SIZE(in.keywords));
  } else if (in.spread_named != nullptr && PyDict_Check(in.spread_named)) {
    for (const auto& [key, value] : entries_of(in.spread_named)) made.names.push_back(key);
  }
  return made.callee != nullptr && call(made, 4);
}

bool Watcher::call(const Call& made, int depth) {
  PyObject* callee = made.callee;
  if (depth == 0) {
    refuse("a call goes through too many partials and bound methods");
    load_arguments(made);
    return false;
  }
  if (PyMethod_Check(callee)) {
    Call bound = made;
    bound.callee = PyMethod_GET_FUNCTION(callee);
    bound.arguments.insert(bound.arguments.begin(), PyMethod_GET_SELF(callee));
    return call(bound, depth - 1);
  }
  if (PyFunction_Check(callee)) {
    calling_ = PyFunction_GET_CODE(callee);
    note_function(callee);
    if (whose(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callee))) == Whose::kTorchs) {
      refuse_untold(callee);
      set_by_torch(made);
      // it may call what it is given: tree_map, Module.apply
      const auto is_unseen = [this](PyObject* value) {
        // in torch's hands Python's own library is not watched
        if (PyFunction_Check(value))
          return whose(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(value))) ==
                 Whose::kPythons;
        if (!is_function_of_c(value)) return false;
        PyObject* const self = PyCFunction_Check(value) ? PyCFunction_GET_SELF(value) : nullptr;
        PyTypeObject* const of = self == nullptr      ? Py_TYPE(value)
                                 : PyType_Check(self) ? as_type(self)
                                                      : Py_TYPE(self);
        return !module_of(value).starts_with("torch") && !type_name(of).starts_with("torch.");
      };
      bool gives_to_c = false;
      made.for_each([&](PyObject* value) { gives_to_c |= is_unseen(value); });
      if (gives_to_c) load_arguments(made);
      made.for_each([&](PyObject* value) { gives_to_c ? load_objects(value) : load_given(value); });
    }
    return false;
  }
  if (PyCFunction_Check(callee)) {
    PyObject* self = without_proxy(PyCFunction_GET_SELF(callee));
    Call named = made;
    named.module = module_of(callee);
    const std::string name = reinterpret_cast<PyCFunctionObject*>(callee)->m_ml->ml_name;
    const bool is_function = self == nullptr || PyModule_Check(self);
    return is_function ? call_builtin(named, name, self) : call_method(named, name, self);
  }
  PyTypeObject* type = Py_TYPE(callee);
  if (type == &PyMethodDescr_Type || type == &PyClassMethodDescr_Type ||
      type == &PyWrapperDescr_Type) {
    if (made.arguments.empty()) return false;
    Call rest = made;
    rest.arguments.erase(rest.arguments.begin());
    PyObject* self = made.arguments.front();
    const std::string name = name_of(callee);
    const bool is_of_attributes =
        name == "__getattribute__" || name == "__setattr__" || name == "__delattr__";
    if (is_tensor(self) && !is_of_attributes) return call_of_torch(made, name);
    return call_method(rest, name, self);
  }
  if (std::string_view(type->tp_name) == "method-wrapper") {
    const py::object self = member(callee, "__self__");
    return self && call_method(made, name_of(callee), self.ptr());
  }
  if (PyType_Check(callee)) {
    auto* const made_class = as_type(callee);
    if (makes_tensors(callee)) {
      // code of the program's may run in another one
      const bool is_torchs_own = callee == THPVariableClass || !is_made_by_class(made_class);
      if (is_torchs_own && begin_tensor(made.arguments)) {
        made.for_each([this](PyObject* value) { load_given(value); });
        return true;
      }
      made.for_each([this](PyObject* value) { read_data(value); });
    }
    static PyObject* const partial = attribute_type("functools", "partial");
    if (callee != partial && !is_made_by_class(made_class))
      return call_builtin(made, made_class->tp_name, nullptr);
    if (PyType_IsSubtype(made_class, &PyType_Type) != 0 && made.arguments.size() > 1)
      make_class(made.arguments[1]);
    for (const char* name : {"__init__", "__new__", "__del__"}) {
      load_of_class(callee, interned(name).ptr());
      PyObject* found = in_class(as_type(callee), name);
      const bool is_static = found != nullptr && Py_TYPE(found) == &PyStaticMethod_Type;
      const py::object inner = is_static ? member(found, "__func__") : borrowed(found);
      if (inner && PyFunction_Check(inner.ptr())) note_function(inner.ptr());
    }
    if (callee != partial && is_given_to_c(callee)) {
      load_arguments(made);
    } else {
      made.for_each([this](PyObject* value) { load_given(value); });
    }
    awaited_.back().makes = made_class;
    return true;
  }
  if (const Wrapped wrapped = wrapped_by(callee); wrapped.function) {
    load_wrapped(callee, wrapped.name);
    if (exists(callee)) mark(wrapped.function.ptr(), path_of(callee));
    Call inner = made;
    inner.callee = wrapped.function.ptr();
    return call(inner, depth - 1);
  }
  if (PyWeakref_Check(callee)) {
    if (exists(callee)) read(Kind::kReferent, callee, nullptr, path_of(callee) + "()");
    return false;
  }
  if (is_cache_of_functools(callee)) {
    read(Kind::kCache, callee, nullptr, path_of(callee) + ".cache");
    const py::object inner = member(callee, "__wrapped__");
    if (inner) mark(inner.ptr(), path_of(callee));
    awaited_.back().path = path_of(callee) + "()";
    awaited_.back().is_kept = true;
    std::string& cached = awaited_.back().cached = path_of(callee) + "(";
    made.for_each([&](PyObject* value) {
      find_by(value, true);
      cached += (cached.ends_with('(') ? "" : ", ") + shown(value);
    });
    cached += ")";
    escape(made);
    return true;
  }
  const bool follows = has_own_call(type);
  if (!follows) {
    if (const std::optional<bool> waits = call_of_functools(made, depth)) return *waits;
  }
  look_up(callee, "__call__");
  if (test_by_numpy(made)) return false;
  if (follow_call(made)) return true;
  if (!is_made_by_class(type)) {
    Call named = made;
    named.module = module_of(callee);
    PyObject* const first = made.arguments.empty() ? nullptr : made.arguments.front();
    if (is_from_outside(named, name_of(callee), first)) return false;
  }
  PyObject* const code_of_call = in_class(type, "__call__");
  if (code_of_call != nullptr && Py_TYPE(code_of_call) == &PyProperty_Type)
    refuse("the step calls an object of `" + type_name(type) + "`, whose `__call__` is a property");
  const bool is_torchs_own =
      is_torchs(type) || is_part_of_model(callee) ||
      (follows &&
       whose(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(code_of_call))) == Whose::kTorchs);
  if (follows && !is_torchs_own) return false;  // it is watched
  load_wrapped(callee, "__wrapped__");
  if (is_torchs_own) {
    load_given(callee);
  } else {  // `numpy.frompyfunc(d.get, 1, 1)`
    std::vector<PyObject*> held;
    if (!is_function_of_cython(callee)) add_held(callee, held);
    for (PyObject* each : held) {
      if (exists(callee) && is_function_of_c(each)) mark(each, path_of(callee));
      load_callable(each);
    }
  }
  made.for_each([&](PyObject* value) {
    if (is_torchs_own) {
      load_given(value);
      if (!follows) FollowedNumbers::current().escape(value);
      return;
    }
    load_whole(value);
    load_deep(value);
    load_objects(value);
  });
  return false;
}

std::optional<bool> Watcher::call_of_functools(const Call& made, int depth) {
  static PyObject* const partial = attribute_type("functools", "partial");
  static PyObject* const getter = attribute_type("operator", "attrgetter");
  static PyObject* const items = attribute_type("operator", "itemgetter");
  static PyObject* const caller = attribute_type("operator", "methodcaller");
  if (is_partial(made.callee)) {
    Call inner = made;
    const py::object function = member(made.callee, "func");
    const py::object arguments = member(made.callee, "args");
    const py::object named = member(made.callee, "keywords");
    if (!function || !arguments || !named) return false;
    if (exists(made.callee)) {
      const std::string path = path_of(made.callee);
      mark(function.ptr(), path);
      for (const char* part : {"func", "args", "keywords"}) {  // __setstate__ changes them
        read(Kind::kMember, made.callee, in_class(Py_TYPE(made.callee), part), path + "." + part);
      }
      load_content(named.ptr());
    }
    inner.callee = function.ptr();
    PyObject** first = &PyTuple_GET_ITEM(arguments.ptr(), 0);
    inner.arguments.insert(inner.arguments.begin(), first,
                           first + PyTuple_GET_SIZE(arguments.ptr()));
    for (const auto& [key, value] : entries_of(named.ptr())) inner.named.push_back(value);
    return call(inner, depth - 1);
  }
  if (made.arguments.empty() ||
      !(is_exactly(made.callee, getter) || is_exactly(made.callee, items) ||
        is_exactly(made.callee, caller))) {
    return std::nullopt;
  }
  if (is_exactly(made.callee, caller)) {
    FollowedNumbers::current().escape(made.callee);
    escape(made);
  } else if (is_followed(made.arguments.front())) {
    escape(made);
  }
  const py::tuple reduced = borrowed(made.callee).attr("__reduce__")();
  py::object parts = reduced[1];
  py::dict named;  // of a methodcaller: it is made by a partial of its class where it has some
  if (is_exactly(py::object(reduced[0]).ptr(), partial)) {
    const py::object maker = reduced[0];
    named = maker.attr("keywords");
    parts = py::object(maker.attr("args")) + parts;
  }
  for (const py::handle& part : parts) {
    if (is_exactly(made.callee, items)) {
      load_item(made.arguments.front(), part.ptr());
      continue;
    }
    py::object at = borrowed(made.arguments.front());
    for (const py::handle& name : py::str(part).attr("split")(".")) {
      if (!at) {
        refuse("the step reads `" + text_of(part.ptr()) + "` of `" +
               path_of(made.arguments.front()) +
               "` by attrgetter, with code of a class in between");
        break;
      }
      load_attribute(at.ptr(), name.ptr());
      at = stored_attribute(at.ptr(), name.ptr());
    }
    if (!is_exactly(made.callee, caller)) continue;
    // the method is called with the other parts
    PyObject* const object = made.arguments.front();
    const py::object own = stored_attribute(object, part.ptr());  // a function of a module
    Call method{.callee = own ? own.ptr() : _PyType_Lookup(Py_TYPE(object), part.ptr())};
    if (!own) method.arguments.push_back(object);
    for (std::size_t i = 1; i < py::len(parts); ++i) {
      method.arguments.push_back(py::object(parts[py::int_(i)]).ptr());  // parts hold them
    }
    for (const auto [key, value] : Entries(named.ptr())) {
      method.names.push_back(key);
      method.named.push_back(value);
    }
    return method.callee != nullptr && call(method, depth - 1);
  }
  return false;
}

bool Watcher::call_builtin(const Call& made, const std::string& name, PyObject* self) {
  if (made.module.starts_with("torch") ||
      (self != nullptr && PyModule_Check(self) &&
       text_of(member(self, "__name__").ptr()).starts_with("torch"))) {
    return call_of_torch(made, name);
  }
  if (is_from_outside(made, name, self)) return false;
  if (is_one_of(name, kTellsWhich))
    made.for_each([this](PyObject* value) { look_at_references(value); });
  if (is_one_of(name, kShows)) refuse_output(name);
  if (is_one_of(name, kShowsAddress))
    made.for_each([this](PyObject* value) { look_at_address(value); });
  const auto& arguments = made.arguments;
  const std::size_t count = arguments.size();
  // a weak reference is found in a set of such by the address of what it is to
  if (name.starts_with("weakref") && count != 0 && exists(arguments[0]) &&
      may_stand_for(arguments[0], arguments[0]))
    moving_.keep_objects();
  if (made.named.empty()) {
    if (const std::optional<bool> waits = compute(name, made.module, arguments)) {
      load_arguments(made, false);
      return *waits;
    }
    if (follow_call(made)) return true;
  }
  if (is_one_of(name, kTakesApart)) {
    made.for_each([this](PyObject* value) {
      load_deep(value);
      load_objects(value);
    });
  }
  if ((name == "getattr" || name == "hasattr") && count >= 2) {
    load_attribute(arguments[0], arguments[1]);
    if (!exists(arguments[0]) && !is_part_of_model(arguments[0])) return false;
    awaited_.back().path = path_of(arguments[0]) + "." + text_of(arguments[1]);
    return name == "getattr";
  }
  const bool stores_item = name == "setitem" || name == "delitem";
  if (made.module == "_operator" && stores_item && count >= 2 && !is_container(arguments[0])) {
    store_item(arguments[0], arguments[1]);
  } else if (name == "setattr" && count == 3) {
    store_attribute(arguments[0], arguments[1]);
  } else if (name == "delattr" && count == 2) {
    delete_attribute(arguments[0], arguments[1]);
  } else if (name == "len" && count == 1) {
    return call_len(arguments[0]);
  } else if (name == "next" && count >= 1) {
    load_iterator(arguments[0]);
  } else if ((name == "vars" || name == "dir") && count == 1) {
    if (PyType_Check(arguments[0])) {
      load_members(arguments[0]);
    } else {
      if (is_tensor(arguments[0])) load_objects(arguments[0]);
      load_methods(arguments[0]);
      load_order(arguments[0]);
      name == "vars" ? static_cast<void>(load_namespace(arguments[0])) : load_objects(arguments[0]);
    }
  } else if (name == "globals" || name == "locals") {
    awaited_.back().path = name;
    awaited_.back().is_kept = true;
    return name == "globals";
  } else if (made.module == "_operator" && (name == "is_" || name == "is_not") && count == 2) {
    if (is_followed(arguments[0]) || is_followed(arguments[1])) {
      refuse("the step asks whether a number that is followed is the same object as another");
    }
    look_which(arguments[0], arguments[1]);
    if (was_there(arguments[0]) && was_there(arguments[1])) slots_->hold_containers();
  } else if ((name == "sorted" || name == "min" || name == "max") && load_by_getter(made)) {
    return false;
  } else if (name == "type" && count == 1) {
    class_of(arguments[0]);
  } else if (name == "__build_class__" && count > 2) {
    for (std::size_t i = 2; i < count; ++i) make_class(arguments[i]);
    load_arguments(made);
  } else if (name == "type" && count > 1) {
    make_class(arguments[1]);
    load_arguments(made);
  } else if ((self == nullptr && is_one_of(name, kHandsOn)) || is_iter(made.callee, count) ||
             ((name == "map" || name == "filter") && count > 0 && !calls_c(arguments[0]))) {
    made.for_each([this](PyObject* value) {
      if (is_followed(value)) FollowedNumbers::current().escape(value);
      load_given(value);
      load_deep(value);
      load_callable(value);
    });
  } else if (is_one_of(name, kAsksForClass) || is_one_of(name, kKeepsHandsOff) ||
             (as_type(made.callee) == &_PyWeakref_RefType && count == 1)) {
    for (PyObject* argument : arguments) {
      class_of(argument);
      load_methods(argument);
      if (is_one_of(name, kAsksForClass)) {
        load_order(argument);
        // which an abstract class asks (CPython, Modules/_abc.c)
        if (name.starts_with("_abc") && PyType_Check(argument) &&
            !is_of_library(type_name(as_type(argument))))
          load_of_class(argument, interned("__subclasshook__").ptr());
      }
      if (name != "hash" && name != "id") continue;
      if (name == "hash") load_hashed(argument);
      if (exists(argument)) {
        slots_->hold_containers();
        moving_.keep_objects();
      }
      FollowedNumbers::current().escape(argument);
      look_which(argument, nullptr);
    }
  } else if (makes_dict(made.callee) || makes_sequence(made.callee)) {
    made.for_each([this](PyObject* value) { load_given(value); });
    if (makes_dict(made.callee) && count == 1) escape_keys(arguments[0]);
  } else {
    load_arguments(made);
  }
  return false;
}

bool Watcher::load_by_getter(const Call& made) {
  static PyObject* const getter = attribute_type("operator", "attrgetter");
  const auto named = [&made](const char* name) -> PyObject* {
    for (std::size_t i = 0; i < made.names.size(); ++i) {
      if (text_of(made.names[i]) == name) return made.named[i];
    }
    return nullptr;
  };
  PyObject* const key = named("key");
  if (key == nullptr || !is_exactly(key, getter) || made.arguments.size() != 1) return false;
  PyObject* const items = made.arguments.front();
  if (!PyList_CheckExact(items) && !PyTuple_CheckExact(items)) return false;
  const py::object names = borrowed(key).attr("__reduce__")()[py::int_(1)];
  struct Compared {
    PyObject* item;
    py::object name, value;
  };
  std::vector<Compared> compared;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(items, i);
    for (const py::handle& name : names) {
      PyObject* of_class = _PyType_Lookup(Py_TYPE(item), name.ptr());
      const bool is_stored = Py_TYPE(item)->tp_getattro == PyObject_GenericGetAttr &&
                             (of_class == nullptr || Py_TYPE(of_class)->tp_descr_set == nullptr);
      const py::object value = is_stored ? stored_attribute(item, name.ptr()) : py::object();
      if (!value) return false;  // code of a class gives it, or it is further down
      compared.push_back({item, borrowed(name.ptr()), value});
    }
  }
  load_content(items);
  for (const auto& [item, name, value] : compared) {
    load_attribute(item, name.ptr());
    FollowedNumbers::current().escape(value.ptr());
    load_whole(value.ptr());
    load_deep(value.ptr());
  }
  for (std::size_t i = 0; i < made.named.size(); ++i) {  // the order, or what `max` gives of none
    if (made.named[i] == key) continue;
    load_whole(made.named[i]);
    load_deep(made.named[i]);
  }
  return true;
}

bool Watcher::call_of_torch(const Call& made, const std::string& name) {
  made.for_each([this](PyObject* value) {
    load_given(value);
    if (is_tensor(value)) load_methods(value);
  });
  std::vector<PyObject*> given = made.arguments;
  given.insert(given.end(), made.named.begin(), made.named.end());
  return call_of_torch(made.callee, name, given);
}

void Watcher::look_at_singles(const Instruction& in) {
  const FollowedNumbers& followed = FollowedNumbers::current();
  if (!followed.watches_any()) return;
  const auto read = [&followed](PyObject* value) { followed.read(value); };
  // these look at its class, or put it into a container
  constexpr std::string_view kLookAtClass =
      "isinstance issubclass type callable append appendleft insert";
  switch (in.operation) {
    case Operation::kStoreGlobal:
    case Operation::kStoreCell:
    case Operation::kCloseOver:
      return;
    case Operation::kStoreAttribute:
      return read(in.first);
    case Operation::kStoreItem:
      if (PySlice_Check(in.second)) read(in.third);  // item by item
      read(in.first);
      return read(in.second);
    case Operation::kHash:
      for (Py_ssize_t i = 0; i < in.count; i += in.stride) read(in.arguments[i]);
      return;
    case Operation::kCall:
      read(in.callee);
      if (PyCFunction_Check(in.callee)) read(PyCFunction_GET_SELF(in.callee));
      if (in.spread != nullptr) read(in.spread);
      if (goes_over_arguments(in.callee)) {
        const Py_ssize_t named = in.keywords == nullptr ? 0 : PyTuple_GET_SIZE(in.keywords);
        for (Py_ssize_t i = 0; in.arguments != nullptr && i < in.count - named; ++i)
          read(in.arguments[i]);
      }
      if (!calls_c(in.callee) || is_one_of(name_of(in.callee), kLookAtClass)) return;
      for (Py_ssize_t i = 0; in.arguments != nullptr && i < in.count; ++i) read(in.arguments[i]);
      for (PyObject* const given : {in.spread, in.spread_named}) {
        std::vector<PyObject*> held;
        if (given != nullptr) add_held(given, held);
        std::ranges::for_each(held, read);
      }
      return;
    default:
      for (PyObject* const value : {in.first, in.second, in.third}) read(value);
  }
}

void Watcher::escape(const Call& made) {
  made.for_each([](PyObject* value) { FollowedNumbers::current().escape(value); });
}

/// Whether functions of a module may look at attributes of objects that they are given: those of
/// extensions may (orjson and pydantic write dataclasses), and those of libraries are known not to,
/// but for dialects of csv.
bool may_look_at_objects(const std::string& module) {
  return module == "_csv" || !is_of_library(module);
}

void Watcher::load_arguments(const Call& made, bool escapes) {
  bool gives_to_c =
      false;  // to a function that shows no instruction, as getattr in map(getattr, ...)
  const bool looks = may_look_at_objects(made.module);
  std::size_t containers = 0;
  made.for_each([&](PyObject* value) {
    gives_to_c |= is_function_of_c(value);
    containers += count_containers(value);
  });
  if (containers > 1) slots_->hold_containers();  // which of them are one may show in what it gives
  if (gives_to_c && !std::exchange(awaited_.back().gives_objects, true)) ++gives_objects_;
  made.for_each([&](PyObject* value) {
    escapes ? load_whole(value) : load_given(value);
    load_deep(value);
    load_callable(value);
    refuse_memory(value);
    if (gives_to_c || looks) load_objects(value);
  });
}

/// NumPy and torch read these attributes of an object that they make an array of, and the memory
/// that they lead to.
void Watcher::refuse_memory(PyObject* value) {
  if (!exists(value) || !is_made_by_class(Py_TYPE(value)) || is_array(value)) return;
  for (const char* attribute :
       {"__array_interface__", "__array_struct__", "__cuda_array_interface__"}) {
    const auto name = interned(attribute);
    PyObject* const of_class = _PyType_Lookup(Py_TYPE(value), name.ptr());
    const bool is_stored = of_class == nullptr ? bool(stored_attribute(value, name.ptr()))
                                               : Py_TYPE(of_class)->tp_descr_get == nullptr;
    if (is_stored) refuse_incomparable("takes the memory of", value);
  }
}

/// What a method of C's gives of an object that was there before, if nobody knows what that is.
void Watcher::refuse_unknown(const std::string& name, PyObject* self) {
  if (exists(self) && !name.starts_with("__") && !is_container(self) && !never_changes(self))
    refuse_incomparable("calls `" + name + "` of", self);
}

void Watcher::load_callable(PyObject* value) {
  if (PyMethod_Check(value) && !PyFunction_Check(PyMethod_GET_FUNCTION(value))) {
    is_from_outside({.callee = value}, name_of(PyMethod_GET_FUNCTION(value)),
                    PyMethod_GET_SELF(value));
  }
  if (is_function_of_cython(value)) {
    is_from_outside({.callee = value, .module = module_of(value)}, name_of(value), nullptr);
  }
  if (const Wrapped wrapped = wrapped_by(value); wrapped.function) {
    load_wrapped(value, wrapped.name);
    if (exists(value)) mark(wrapped.function.ptr(), path_of(value));
    return load_callable(wrapped.function.ptr());
  }
  if (!is_function_of_c(value)) return;
  if (is_one_of(name_of(value), kTellsAddress)) moving_.keep_objects();
  std::vector<PyObject*> held;
  py::object self;
  if (is_partial(value)) {
    add_held(value, held);
  } else if (PyCFunction_Check(value)) {
    self = borrowed(PyCFunction_GET_SELF(value));
    is_from_outside({.callee = value, .module = module_of(value)},
                    reinterpret_cast<PyCFunctionObject*>(value)->m_ml->ml_name, self.ptr());
  } else if (std::string_view(Py_TYPE(value)->tp_name) == "method-wrapper") {
    self = member(value, "__self__");
  }
  if (self && !PyModule_Check(self.ptr())) {
    held.push_back(self.ptr());
    refuse_unknown(text_of(member(value, "__name__").ptr()), self.ptr());
  }
  for (PyObject* inner : held) {  // max(names, key=scores.get), map(partial(getattr, o), names)
    if (exists(value)) mark(inner, path_of(value));
    load_deep(inner);
    load_objects(inner);
  }
}

bool Watcher::call_method(const Call& made, const std::string& name, PyObject* self) {
  const auto& arguments = made.arguments;
  if (is_one_of(name, kTellsWhich)) {
    look_at_references(self);
    made.for_each([this](PyObject* value) { look_at_references(value); });
  }
  if (is_followed(self) && name == "round") {  // of NumPy's numbers
    static PyObject* const function = imported("numpy", "round");
    Call of_numpy = made;
    of_numpy.callee = function;
    of_numpy.arguments.insert(of_numpy.arguments.begin(), self);
    if (is_float(self) && follow_call(of_numpy)) {
      awaited_.back().of_numbers->path = "numpy.round";
      return true;
    }
    FollowedNumbers::current().escape(self);
  }
  if ((PyUnicode_Check(self) && name == "format") || (PyAnySet_Check(self) && name == "add"))
    made.for_each([this](PyObject* value) { look_at_address(value); });
  if (PyAnySet_Check(self) && was_there(self))
    made.for_each([this](PyObject* value) { look_at_key(value); });
  if (name == "__hash__" || name == "__repr__" || name == "__str__" || name == "__format__") {
    look_at_address(self);
    made.for_each([this](PyObject* value) { look_at_address(value); });
  }
  if (name == "__getattribute__" && arguments.size() == 1) {
    load_attribute(self, arguments[0]);
    ask_module(self, arguments[0]);
    awaited_.back().path = path_of(self) + "." + text_of(arguments[0]);
    return exists(self);
  }
  if (is_generator(self)) return call_of_generator(self, name, arguments);
  const bool is_torchs_module = is_part_of_model(self) && is_torchs(Py_TYPE(self));
  if ((name == "__setattr__" || name == "__delattr__") && !arguments.empty() && !is_torchs_module) {
    // this one sets it, whatever the class would do
    name == "__setattr__" ? store_attribute(self, arguments[0], nullptr)
                          : delete_attribute(self, arguments[0], nullptr);
    return false;
  }
  if (is_tensor(self) || is_torchs(Py_TYPE(self)) ||
      (PyType_Check(self) && is_torchs(as_type(self)))) {
    return call_of_torch(made, name);
  }
  if (name == "__call__") {
    Call by_itself = made;
    by_itself.callee = self;
    if (const std::optional<bool> waits = call_of_functools(by_itself, 3)) return *waits;
    return call(by_itself, 3);
  }
  if (name == "__get__" && Py_TYPE(self) == &PyProperty_Type && !arguments.empty()) {
    const py::object getter = member(self, "fget");
    return getter && call({.callee = getter.ptr(), .arguments = {arguments[0]}}, 3);
  }
  if (is_from_outside(made, name, self)) return false;
  if (is_one_of(name, kShows) && exists(self)) return refuse_output(name);
  if (name == "__get__" && is_member(self) && !arguments.empty() && exists(arguments[0])) {
    read(Kind::kMember, arguments[0], self,
         path_of(arguments[0]) + "." + text_of(PyDescr_NAME(self)));
    return false;
  }
  if ((name == "__set__" || name == "__delete__") && is_member(self) && !arguments.empty() &&
      exists(arguments[0])) {
    write(Kind::kMember, arguments[0], self,
          path_of(arguments[0]) + "." + text_of(PyDescr_NAME(self)));
    return false;
  }
  if (name == "mro") load_order(self);
  if (name.starts_with("__reduce") || name == "__getstate__" || name == "__dir__")
    load_objects(self);
  if (is_one_of(name, kTakesApart)) {
    made.for_each([this](PyObject* value) {
      load_deep(value);
      load_objects(value);
    });
  }
  const bool is_dict = PyDict_Check(self);
  // an OrderedDict sets entries by what its class has for it (Objects/odictobject.c)
  const bool sets_by_code = PyODict_Check(self) && is_done_by_code(self, "__setitem__");
  const bool is_get_or_set = is_dict && !sets_by_code && name == "setdefault" &&
                             !arguments.empty() && is_plain_key(arguments[0]);
  const bool is_get = is_get_or_set && PyDict_Contains(self, arguments[0]) == 1;
  if (!is_get && (is_one_of(name, kChanges) || is_one_of(name, kTakes))) change_given(self);
  // a list's or dict's own method keeps what it is given, but for keys and positions
  // of others, C asks `keys()` and `__getitem__` of their class (dict_merge, Objects/dictobject.c)
  const auto is_a_dict = [self](PyObject* value) {
    if (PyDict_CheckExact(value) || PyODict_CheckExact(value)) return true;
    return PyDict_Check(value) && !PyODict_Check(self) &&
           Py_TYPE(value)->tp_iter == PyDict_Type.tp_iter;
  };
  const bool merges =
      is_dict && !sets_by_code && name == "update" && std::ranges::all_of(arguments, is_a_dict);
  const bool keeps =
      merges || ((PyList_Check(self) || is_dict || is_deque(self)) && is_one_of(name, kKeeps));
  if (exists(self) && is_dict && (name == "get" || name == "__getitem__" || is_get) &&
      !arguments.empty()) {
    load_item(self, arguments[0]);
  } else if (exists(self) && is_get_or_set) {
    read(Kind::kHas, self, arguments[0], path_of_item(self, arguments[0]));
    store_item(self, arguments[0], nullptr);
  } else if (exists(self) && (is_dict || PyAnySet_Check(self)) && name == "__contains__" &&
             !arguments.empty() && is_plain_key(arguments[0])) {
    read(Kind::kHas, self, arguments[0], path_of_item(self, arguments[0]));
  } else if (exists(self) && is_dict && (name == "__setitem__" || name == "__delitem__") &&
             !arguments.empty()) {
    if (name == "__delitem__") take_entry(self, arguments[0], path_of(self));
    store_item(self, arguments[0], nullptr);
  } else if (exists(self) && is_dict && name == "pop" && !arguments.empty() &&
             is_plain_key(arguments[0]) && has_added(self, arguments[0])) {
    store_item(self, arguments[0], nullptr);
  } else if (exists(self) && is_dict && (name == "keys" || name == "__iter__")) {
    read(Kind::kKeys, self, nullptr, path_of(self));
  } else if (exists(self) && name == "__len__") {
    load_size(self);
  } else if (exists(self) && merges) {
    for (PyObject* argument : arguments) {
      for (const auto& [key, value] : entries_of(argument)) store_item(self, key, nullptr);
    }
    for (PyObject* key : made.names) store_item(self, key, nullptr);
  } else if (exists(self) && is_one_of(name, kChanges) && holds_items(self)) {
    if (name == "sort" || name == "remove") {  // they compare what is there
      load_whole(self);
      load_deep(self);
    }
    change(self, path_of(self),
           arguments.empty() ? std::nullopt : appended_by(name, self, arguments[0]));
  } else if (exists(self) && is_one_of(name, kTakes)) {
    if (PyAnySet_Check(self)) {
      refuse("`pop` takes whichever item of the set `" + path_of(self) +
             "` comes next, which depends on what it has held");
    }
    load_content(self);
    change(self, path_of(self));
  } else {
    const bool compares = !keeps && !is_one_of(name, kGives);
    compares ? load_whole(self) : load_content(self);
    if (compares) load_deep(self);
    refuse_unknown(name, self);
  }
  // without such a key they return the default itself
  const bool has_default = is_dict && (name == "get" || name == "pop");
  if (keeps || has_default) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool is_key = i == 0 && (arguments.size() > 1 || name == "setdefault" || has_default);
      is_key ? load_whole(arguments[i]) : load_given(arguments[i]);
    }
    return false;
  }
  if (name == "__new__" && self == reinterpret_cast<PyObject*>(&PyBaseObject_Type)) {
    const bool is_of_class = !arguments.empty() && PyType_Check(arguments[0]);
    if (is_of_class) load_of_class(arguments[0], interned("__del__").ptr());
    load_arguments(made);
    awaited_.back().makes = is_of_class ? as_type(arguments[0]) : &PyBaseObject_Type;
    return true;
  }
  if (name == "__new__" && self == reinterpret_cast<PyObject*>(&PyType_Type) &&
      arguments.size() > 2)
    make_class(arguments[2]);
  const bool makes_tuple = name == "__new__" && self == reinterpret_cast<PyObject*>(&PyTuple_Type);
  if (makes_tuple) {
    for (PyObject* argument : arguments) load_given(argument);
    return false;
  }
  Call with_list = made;
  if (name == "sort") with_list.arguments.push_back(self);  // whose items its key looks at
  if (name != "sort" || !load_by_getter(with_list)) load_arguments(with_list);
  return false;
}

}  // namespace steptape::python::watch
