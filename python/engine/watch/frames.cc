#include <torch/csrc/autograd/python_variable.h>

#include "python/engine/structure.h"
#include "python/engine/watch/call.h"
#include "recorder/intercept/interceptor.h"

/// What is known of the code that runs as it is entered and left: functions, modules, steps of
/// optimizers.
namespace steptape::python::watch {
namespace {

/// What autograd gives to a function of the program's own, new each time.
bool is_context(PyObject* object) {
  static PyObject* const base = attribute_type("torch._C", "_FunctionBase");
  return PyType_IsSubtype(Py_TYPE(object), as_type(base)) != 0;
}

/// The functions of this code, where the interpreter does not say which of them runs; none where
/// they are many, as closures can be.
std::vector<py::object> functions_of(PyCodeObject* code) {
  constexpr std::size_t kMost = 16;
  static PyObject* const referrers = imported("gc", "get_referrers");
  const auto held =
      stolen(PyObject_CallFunctionObjArgs(referrers, reinterpret_cast<PyObject*>(code), nullptr));
  std::vector<py::object> found;
  if (!held) PyErr_Clear();
  for (Py_ssize_t i = 0; held && i < PyList_GET_SIZE(held.ptr()); ++i) {
    PyObject* each = PyList_GET_ITEM(held.ptr(), i);
    if (PyFunction_Check(each)) found.push_back(borrowed(each));
  }
  if (found.size() > kMost) found.clear();
  return found;
}

}  // namespace

void Watcher::note_function(PyObject* function) {
  PyObject* named = PyFunction_GET_KW_DEFAULTS(function);
  if (named != nullptr && exists(named)) load_content(named);  // of a function of the step's, too
  if (!exists(function)) return;
  called_codes_.insert(PyFunction_GET_CODE(function));
  if (whose(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function))) == Whose::kTorchs) {
    mark_closure(function, 4);
  }
  const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(function)->func_name);
  for (const char* part : {"__code__", "__defaults__", "__kwdefaults__"}) {
    read(Kind::kFunction, function, interned(part).ptr(), name + "." + part);
  }
  if (PyObject* defaults = PyFunction_GET_DEFAULTS(function)) {
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    const auto names = member(reinterpret_cast<PyObject*>(code), "co_varnames");
    const Py_ssize_t first = code->co_argcount - PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(defaults); ++i) {
      mark(PyTuple_GET_ITEM(defaults, i), text_of(PyTuple_GET_ITEM(names.ptr(), first + i)));
    }
  }
  if (named != nullptr && PyDict_Check(named)) {
    mark(named, name + ".__kwdefaults__");
    load_content(named);
  }
}

void Watcher::mark_closure(PyObject* function, int depth) {
  PyObject* cells = PyFunction_GET_CLOSURE(function);
  for (Py_ssize_t i = 0; cells != nullptr && i < PyTuple_GET_SIZE(cells); ++i) {
    PyObject* held = PyCell_GET(PyTuple_GET_ITEM(cells, i));
    if (held == nullptr) continue;
    mark(held, path_of(function));
    if (depth > 1 && PyFunction_Check(held)) mark_closure(held, depth - 1);
    if (is_partial(held)) called(held);
  }
}

void Watcher::enter(PyObject* function, PyCodeObject* code, PyObject* const* arguments,
                    Py_ssize_t count, bool by_watched) {
  if (slots_ == nullptr) return;
  try {
    enter_frame(function, code, arguments, count, by_watched);
  } catch (const std::exception& error) {
    refuse(std::string("what the step reads could not be watched: ") + error.what(),
           RefusalCode::kRecordingFailed);
  }
  PyErr_Clear();
}

void Watcher::enter_frame(PyObject* function, PyCodeObject* code, PyObject* const* arguments,
                          Py_ssize_t count, bool by_watched) {
  PyObject* self = count > 0 ? arguments[0] : nullptr;
  if (self != nullptr && PyCell_Check(self)) self = PyCell_GET(self);
  if (self != nullptr && is_part_of_model(self) && text_of(code->co_name) == "step") {
    note_step(self);
  }
  if (code == call_of_modules()) return enter_module(self);
  if (whose(code) == Whose::kTorchs) return enter_torch(code);
  if (is_for_numbers_) return;
  const std::string name = text_of(code->co_name);
  if (function == nullptr && self != nullptr) {  // CPython 3.10 does not say
    PyObject* method = _PyType_Lookup(Py_TYPE(self), code->co_name);
    const bool is_it = method != nullptr && PyFunction_Check(method) &&
                       PyFunction_GET_CODE(method) == reinterpret_cast<PyObject*>(code);
    if (is_it) function = method;
  }
  // asked of all that runs: it notes what that makes
  const bool was_there =
      !may_be_made(code) || (function != nullptr && !by_watched && handed_.was_there(function));
  if (function != nullptr) {
    if (was_there) mark(function, name);
    note_function(function);
  } else if (was_there && !called_codes_.contains(reinterpret_cast<PyObject*>(code))) {
    for (const py::object& each : functions_of(code)) {
      mark(each.ptr(), name);
      note_function(each.ptr());
    }
  }
  if (count > 0 && arguments[0] != nullptr && (name == "__init__" || name == "__post_init__") &&
      !exists(arguments[0])) {
    fresh_.insert(arguments[0]);
  }
  const bool is_called = std::exchange(calling_, nullptr) == reinterpret_cast<PyObject*>(code);
  if (by_watched && is_called) return;  // with what has been seen
  const int rest = count_rest(code);
  const auto names = member(reinterpret_cast<PyObject*>(code), "co_varnames");
  for (Py_ssize_t i = 0; i < count + rest && names; ++i) {
    PyObject* given = arguments[i];
    if (given != nullptr && PyCell_Check(given)) given = PyCell_GET(given);
    if (given == nullptr) continue;
    const std::string name_of_it = text_of(PyTuple_GET_ITEM(names.ptr(), i));
    if (i >= count && PyDict_CheckExact(given)) {
      for (const auto& [key, value] : entries_of(given)) meet(value, text_of(key), by_watched);
      continue;
    }
    if (i == 0 && !by_watched && is_heap(Py_TYPE(given)) && !is_tensor(given)) {
      load_methods(given);  // it was found in its class
      if (_PyType_Lookup(Py_TYPE(given), code->co_name) != nullptr) {
        read(Kind::kAttribute, reinterpret_cast<PyObject*>(Py_TYPE(given)), code->co_name,
             type_name(given) + "." + name);
      }
    }
    meet(given, name_of_it, by_watched);
  }
}

void Watcher::meet(PyObject* given, const std::string& name, bool by_watched, int depth) {
  if (given == nullptr || is_tensor(given) || is_atom(given) || exists(given)) return;
  if (PyTuple_CheckExact(given)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given) && depth > 1; ++i)
      meet(PyTuple_GET_ITEM(given, i), name, by_watched, depth - 1);
    return;
  }
  if (is_context(given) || given_containers_.contains(given) || fresh_.contains(given)) return;
  // of the program's classes torch's code and C's make no objects, but where one is called that has
  // torch's `__init__`
  const bool may_be_new = std::ranges::any_of(
      awaited_, [given](const Awaited& call) { return call.makes == Py_TYPE(given); });
  const bool is_known = !by_watched && is_heap(Py_TYPE(given)) && !may_be_new;
  if (is_known || handed_.was_there(given)) mark(given, name);
}

bool has_hooks(PyObject* tensor) {
  const auto* variable = reinterpret_cast<THPVariable*>(tensor);
  return variable->backward_hooks != nullptr || variable->post_accumulate_grad_hooks != nullptr;
}

void Watcher::load_hooks(PyObject* hooks) {
  if (hooks == nullptr || !PyDict_Check(hooks)) return;
  for (const auto& [key, hook] : entries_of(hooks)) {
    const bool is_seen = PyFunction_Check(hook) ||
                         (PyMethod_Check(hook) && PyFunction_Check(PyMethod_GET_FUNCTION(hook)));
    if (is_seen) continue;
    mark(hook, "a hook");
    load_callable(hook);
    called(hook);
  }
}

void Watcher::load_hooks_of(PyObject* module) {
  PyObject* dict = dict_of(module);
  if (dict == nullptr) return;
  for (const auto& [key, value] : entries_of(dict)) {
    const std::string_view name = PyUnicode_Check(key) ? view_of(key) : "";
    if (name.starts_with('_') && name.ends_with("_hooks")) load_hooks(value);
  }
  load_hooks_of_parameters(module);
}

void Watcher::load_hooks_of_parameters(PyObject* module) {
  PyObject* const dict = dict_of(module);
  PyObject* const own = dict == nullptr ? nullptr : PyDict_GetItemString(dict, "_parameters");
  if (own == nullptr || !PyDict_Check(own)) return;
  for (const auto& [name, tensor] : entries_of(own)) mark(tensor, text_of(name));
}

void Watcher::load_hooks_of_models() {
  std::vector<PyObject*> modules;  // a hook may lead to more
  for (const auto& [module, reads] : modules_) modules.push_back(module);
  for (PyObject* module : modules) load_hooks_of_parameters(module);
}

void Watcher::load_hooks_of_all(const char* module) {
  const auto found = stolen(PyImport_GetModule(interned(module).ptr()));
  if (found) load_hooks_of(found.ptr());
}

void Watcher::load_hooks_of_tensor(PyObject* tensor) {
  load_hooks(reinterpret_cast<THPVariable*>(tensor)->backward_hooks);
  load_hooks(reinterpret_cast<THPVariable*>(tensor)->post_accumulate_grad_hooks);
}

/// Whether code that has run makes a function of this one. What is called by code of torch's or of
/// C's was there before else.
bool Watcher::may_be_made(PyCodeObject* code) {
  if (entered_.insert(code).second) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
      PyObject* held = PyTuple_GET_ITEM(code->co_consts, i);
      if (PyCode_Check(held)) made_.insert(reinterpret_cast<PyCodeObject*>(held));
    }
  }
  return made_.contains(code) || whose(code) != Whose::kPrograms;
}

PyCodeObject* Watcher::call_of_modules() {
  static PyObject* const code =
      py::object(module_named("torch.nn").attr("Module").attr("_call_impl").attr("__code__"))
          .release()
          .ptr();
  return reinterpret_cast<PyCodeObject*>(code);
}

void Watcher::enter_module(PyObject* module) {
  called_modules_.push_back(module);
  if (module != nullptr && !is_for_numbers_) {
    if (called_modules_.size() == 1) load_hooks_of_all("torch.nn.modules.module");
    load_hooks_of(module);
    PyObject* const own = dict_of(module);
    PyObject* const forward = own == nullptr ? nullptr : PyDict_GetItemString(own, "forward");
    if (forward != nullptr && !PyFunction_Check(forward)) {
      mark(forward, path_of(module) + ".forward");
      load_callable(forward);
    }
  }
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  if (hints == nullptr || module == nullptr) return;
  hints->enter_module(modules_.contains(module) ? path_of(module) : "", module);
}

void Watcher::leave() {
  if (called_modules_.empty()) return;
  PyObject* module = called_modules_.back();
  called_modules_.pop_back();
  if (recorder::FrontendHints* hints = recorder::FrontendHints::current())
    hints->leave_module(module);
}

void Watcher::enter_torch(PyCodeObject* code) {
  if (text_of(code->co_name) == "__array__") return ask_for_array();
  if (text_of(code->co_name) != "compile_wrapper") return;
  // Dynamo would see what intercepts ops, and fail or compile anew without it
  recorder::interceptor(Interception::kFakeKey).suspend();
  refuse("the step calls what torch.compile has made, whose kernels no op shows",
         RefusalCode::kUnreplayableOp);
}

void Watcher::note_step(PyObject* optimizer) {
  stepped_.insert(optimizer);
  if (!is_for_numbers_) {
    load_hooks_of_all("torch.optim.optimizer");
    load_hooks_of(optimizer);
  }
  if (type_name(optimizer) != "torch.optim.lbfgs.LBFGS") return;
  refuse(
      "LBFGS decides on the host how often it calls its closure, and makes its state anew: wrap "
      "the "
      "closure, `closure = steptape.wrap(closure)`, and call `optimizer.step(closure)` outside",
      RefusalCode::kOptimizerUnsupported);
}

}  // namespace steptape::python::watch
