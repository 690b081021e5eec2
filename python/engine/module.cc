#include <ATen/PythonTorchFunctionTLS.h>
#include <Python.h>
#include <pybind11/stl.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "live/ambient.h"
#include "live/hooks.h"
#include "python/engine/followed.h"
#include "python/engine/python.h"
#include "python/engine/recorder.h"
#include "python/engine/step/step.h"
#include "recorder/frontend_hints.h"
#include "session/deferred.h"
#include "steptape/counters.h"
#include "steptape/error.h"
#include "steptape/player.h"
#include "trace/path.h"
#include "trace/text/text.h"

/// The extension module steptape._engine: what the Python package calls.
namespace steptape::python {
namespace {

/// The dicts in which `torch.Tensor.register_hook` and its like keep what they are given.
class PythonHooks final : public live::HookList {
 public:
  explicit PythonHooks(const THPVariable& tensor) {
    add(tensor.backward_hooks);
    add(tensor.post_accumulate_grad_hooks);
  }
  ~PythonHooks() override {
    const py::gil_scoped_acquire lock;
    hooks_.clear();
  }
  PythonHooks(const PythonHooks&) = delete;
  PythonHooks& operator=(const PythonHooks&) = delete;

  bool same(const live::HookList& other) const override {
    const py::gil_scoped_acquire lock;
    const auto is_same = [](const Hook& a, const Hook& b) {
      if (a.key != b.key || a.hook != b.hook) return false;
      // the address of one that is gone may serve another
      return std::ranges::all_of(std::array{&a, &b}, [](const Hook* each) {
        return !each->weak || referent_of(each->weak.ptr()) == each->hook;
      });
    };
    return std::ranges::equal(hooks_, static_cast<const PythonHooks&>(other).hooks_, is_same);
  }

 private:
  struct Hook {
    Py_hash_t key;
    PyObject* hook;   ///< for its address alone
    py::object weak;  ///< to it, where it can be
  };

  void add(PyObject* dict) {
    hooks_.push_back({dict == nullptr, nullptr, {}});
    if (dict == nullptr || !PyDict_Check(dict)) return;
    for (const auto& [key, hook] : entries_of(dict)) {
      PyObject* weak = PyWeakref_NewRef(hook, nullptr);
      hooks_.push_back({PyObject_Hash(key), hook, stolen(weak)});
      PyErr_Clear();
    }
  }

  std::vector<Hook> hooks_;
};

std::shared_ptr<const live::HookList> hooks_of(const c10::TensorImpl& tensor) {
  const auto* object = reinterpret_cast<THPVariable*>(tensor.pyobj_slot()->load_pyobj());
  if (object == nullptr) return nullptr;
  const py::gil_scoped_acquire lock;
  return std::make_shared<PythonHooks>(*object);
}

/// Guards compare the hooks of tensors from Python from here on, by their keys and by which objects
/// they are.
void watch_tensor_hooks() { live::set_hook_lists(hooks_of); }

/// torch.utils._device.DeviceContext; never released: modes may be looked at while Python ends.
PyObject* device_context() {
  static PyObject* const type = imported("torch.utils._device", "DeviceContext");
  return type;
}

live::FunctionModes read() {
  const py::gil_scoped_acquire gil;
  live::FunctionModes modes;
  // the newest comes last, and is asked first
  for (std::int64_t i = at::impl::PythonTorchFunctionTLS::stack_len(); i-- > 0;) {
    const auto& mode = at::impl::PythonTorchFunctionTLS::get_stack_at(i);
    const py::handle object(mode->ptr(getPyInterpreter()));
    if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != device_context()) return {true};
    if (!modes.default_device) modes.default_device = py::cast<c10::Device>(object.attr("device"));
  }
  return modes;
}

/// Tells `live::Ambient` which torch-function modes are of torch.device or
/// torch.set_default_device.
void watch_function_modes() {
  device_context();
  live::read_function_modes_by(&read);
}

/// The hints of the recording that is under way; probes run in one.
recorder::FrontendHints& hints() {
  recorder::FrontendHints* current = recorder::FrontendHints::current();
  if (current == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "no step is being recorded in this thread");
  }
  return *current;
}

/// The number that takes the place of `value` while a step is recorded; `value` where none can.
py::object follow(const py::object& value, const std::string& kind, const std::string& path) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (numbers.contains(value.ptr())) {
    // at entry: it is in a container that is an argument, too. In the step it has a formula
    if (watch::current() == nullptr) numbers.escape(value.ptr());
    return value;
  }
  if (!FollowedNumbers::can_follow_given(value.ptr())) return value;
  const trace::Index leaf = hints().leaf(trace::leaf_kind_of(kind), path);
  return numbers.follow(value.ptr(), trace::leaf(leaf));
}

void refuse(const std::string& code, const std::string& message, const std::string& place) {
  hints().refuse(refusal_code_of(code), message, place);
}

/// Numbers of the step that a function has kept: replays call it with those of the recording.
void escape_kept(PyObject* function) {
  FollowedNumbers& numbers = FollowedNumbers::current();
  if (PyMethod_Check(function)) function = PyMethod_GET_FUNCTION(function);
  if (!PyFunction_Check(function)) {  // a partial function, and what it is of
    numbers.escape(function);
    const py::object inner = py::getattr(function, "func", py::none());
    if (!inner.is_none()) escape_kept(inner.ptr());
    return;
  }
  numbers.escape(PyFunction_GET_DEFAULTS(function));
  numbers.escape(PyFunction_GET_KW_DEFAULTS(function));
  PyObject* cells = PyFunction_GET_CLOSURE(function);
  for (Py_ssize_t i = 0; cells != nullptr && i < PyTuple_GET_SIZE(cells); ++i) {
    numbers.escape(PyCell_GET(PyTuple_GET_ITEM(cells, i)));
  }
}

/// Keeps `function` until nobody looks any more; outside a step it is called at once.
void observe(const py::object& tensor, py::function function) {
  if (!is_tensor(tensor.ptr())) {
    throw Error(ErrorCode::kInvalidArgument,
                "observe: the first argument is a " + type_name(tensor.ptr()) + ", not a tensor");
  }
  escape_kept(function.ptr());
  const auto kept = std::shared_ptr<py::function>(new py::function(std::move(function)),
                                                  [](py::function* let_go) {
                                                    const py::gil_scoped_acquire gil;
                                                    delete let_go;
                                                  });
  const auto look = [kept](const at::Tensor& value) { (*kept)(object_of(value)); };
  if (session::Deferred* deferred = session::Deferred::current()) {
    deferred->observe(tensor_of(tensor.ptr()), look);
  } else {
    look(tensor_of(tensor.ptr()).detach());
  }
}

std::vector<at::Tensor> tensors_of(const py::list& list) {
  std::vector<at::Tensor> tensors;
  for (const py::handle& item : list) {
    if (!is_tensor(item.ptr())) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a loaded step takes tensors, not a " + type_name(item.ptr()));
    }
    tensors.push_back(tensor_of(item.ptr()));
  }
  return tensors;
}

py::list list_of(const std::vector<TensorSpec>& specs) {
  py::list list;
  for (const TensorSpec& spec : specs) {
    py::dict dict;
    dict["path"] = spec.path;
    dict["dtype"] = spec.dtype;
    dict["sizes"] = py::cast(spec.sizes);
    list.append(dict);
  }
  return list;
}

template <typename Enum>
py::dict as_dict(const std::map<Enum, std::uint64_t>& counts) {
  py::dict dict;
  for (const auto& [value, count] : counts) dict[py::str(std::string(name_of(value)))] = count;
  return dict;
}

py::dict counters_dict() {
  const Counters counters = steptape::counters();
  py::dict dict;
  dict["steps"] = counters.steps;
  dict["recorded"] = counters.recorded;
  dict["trials"] = counters.trials;
  dict["audits"] = counters.audits;
  dict["replayed"] = counters.replayed;
  dict["eager"] = counters.eager;
  dict["fallbacks"] = as_dict(counters.fallbacks);
  dict["refusals"] = as_dict(counters.refusals);
  dict["plans"] = counters.plans;
  dict["divergences"] = counters.divergences;
  dict["rebinds"] = counters.rebinds;
  dict["log_lines_lost"] = counters.log_lines_lost;
  return dict;
}

Environment environment_of(const std::string& name) {
  if (name == "exact") return Environment::kExact;
  if (name == "any") return Environment::kAny;
  throw Error(ErrorCode::kInvalidArgument,
              "environment is '" + name + "'; it must be one of 'exact', 'any'");
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!py::detail::is_holder_constructed(self)) return 0;
  return py::cast<Tracked&>(py::handle(self)).roots().visit(visit, arg);
}

int clear(PyObject* self) {
  if (py::detail::is_holder_constructed(self)) py::cast<Tracked&>(py::handle(self)).roots().clear();
  return 0;
}

void make_collectable(PyHeapTypeObject* heap_type) {
  auto* type = &heap_type->ht_type;
  type->tp_flags |= Py_TPFLAGS_HAVE_GC;
  type->tp_traverse = &traverse;
  type->tp_clear = &clear;
}

int on_event(const char* event, PyObject*, void*) {
  watch::Listener* const listener = watch::current();
  if (auto* watcher = dynamic_cast<watch::Watcher*>(listener)) watcher->note_event(event);
  return 0;
}

void define(py::module_& m) {
  PySys_AddAuditHook(&on_event, nullptr);
  watch_function_modes();
  watch_tensor_hooks();
  recorder::FrontendHints::set_locator(&locate);
  recorder::FrontendHints::set_collector([] {
    const py::gil_scoped_acquire gil;
    PyGC_Collect();
  });
  m.def("set_folders", [](std::string own, std::string torchs, std::vector<std::string> shared) {
    folders() = {std::move(own), std::move(torchs), std::move(shared)};
  });
  m.def("discard", [] { hints().discard(); });
  // classes by the stable name of the code; never let go of, since the interpreter ends first
  static auto* error_types = new py::object();
  m.def("set_error_types", [](py::dict types) { *error_types = std::move(types); });
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const std::string code(name_of(error.code()));
      const py::object type = (*error_types)[py::str(code)];
      PyErr_SetString(type.ptr(), error.what());
    }
  });

  py::class_<Tracked>(m, "Tracked")
      .def("track_model", &Tracked::track_model)
      .def("track_optimizer", &Tracked::track_optimizer)
      .def("track_generator", &Tracked::track_generator)
      .def("track_host", &Tracked::track_host)
      .def("untrack", &Tracked::untrack)
      .def("drop_released", &Tracked::drop_released)
      .def("capture", &Tracked::capture)
      .def("changes", &Tracked::changes)
      .def("state_numbers", &Tracked::state_numbers)
      .def("assign_again", &Tracked::assign_again)
      .def("begin_watch", &Tracked::begin_watch)
      .def("begin_numbers", &Tracked::begin_numbers)
      .def("end_watch", &Tracked::end_watch)
      .def("refuse_hidden", &Tracked::refuse_hidden)
      .def("reads", &Tracked::reads)
      .def("place_of_write", &Tracked::place_of_write)
      .def("note_moving", &Tracked::note_moving)
      .def("take_news", &Tracked::take_news)
      .def("close_moving", &Tracked::close_moving)
      .def("declare_moving", &Tracked::declare_moving)
      .def("moving", &Tracked::moving);
  py::class_<Recorder, Tracked>(m, "Recorder", py::custom_type_setup(&make_collectable))
      .def(py::init<std::string, std::string, bool, bool>())
      .def("begin", &Recorder::begin)
      .def("end", &Recorder::end)
      .def("write", &Recorder::write)
      .def("refusals", &Recorder::refusals);
  py::class_<Step, Tracked>(m, "Step", py::custom_type_setup(&make_collectable))
      .def(py::init<const py::dict&>())
      .def("add_host_value", &Step::add_host_value)
      .def("host_value", &Step::host_value)
      .def("bind", &Step::bind)
      .def("__call__", &Step::call)
      .def("stats", &Step::stats)
      .def("explain", &Step::explain)
      .def("invalidate", &Step::invalidate)
      .def("is_inside", &Step::is_inside)
      .def("refuse_always", &Step::refuse_always)
      .def("save", &Step::save);

  py::class_<PlayerStep>(m, "PlayerStep")
      .def("run",
           [](PlayerStep& step, const py::list& inputs) {
             const std::vector<at::Tensor> results = step.run(tensors_of(inputs));
             return py::make_tuple(results, step.numbers());
           })
      .def("check",
           [](const PlayerStep& step, const py::list& inputs) -> py::object {
             const Verdict verdict = step.check(tensors_of(inputs));
             if (verdict) return py::none();
             return py::str(verdict.text());
           })
      .def("inputs", [](const PlayerStep& step) { return list_of(step.inputs()); })
      .def("structure", &PlayerStep::structure)
      .def("structures", &PlayerStep::structures);
  py::class_<Player>(m, "Player")
      .def(py::init([](const std::string& path, const std::string& environment) {
        LoadOptions options;
        options.environment = environment_of(environment);
        return steptape::load(path, options);
      }))
      .def("steps", &Player::steps)
      .def("step", &Player::step, py::keep_alive<0, 1>())
      .def("state", [](const Player& player) { return list_of(player.state()); })
      .def("tensor", &Player::tensor)
      .def("scalars", &Player::scalars)
      .def("scalar", &Player::scalar)
      .def("set", &Player::set)
      .def("explain", &Player::explain)
      .def("save", &Player::save)
      .def("save_weights",
           [](const Player& player, const std::string& path, const std::string& of,
              bool everything) {
             player.save_weights(path, {of, everything, true});
           })
      .def("load_weights",
           [](Player& player, const std::string& path, const std::string& of, bool strict) {
             player.load_weights(path, {of, false, strict});
           });

  m.def("held_at", [](const py::object& owner, const py::object& key) {
    return or_none(held_at(owner.ptr(), key.is_none() ? nullptr : key.ptr()).ptr());
  });
  m.def("put_at", [](const py::object& owner, const py::object& key, const py::object& value) {
    put_at(owner.ptr(), key.is_none() ? nullptr : key.ptr(), value.ptr());
  });
  m.def("is_recording", [] { return recorder::FrontendHints::current() != nullptr; });
  m.def("follow", &follow);
  m.def("is_plain_number", [](const py::object& value) { return is_plain_number(value.ptr()); });
  m.def("is_followed", [](const py::object& value) { return is_followed(value.ptr()); });
  m.def("plain",
        [](const py::object& number) { return FollowedNumbers::current().plain(number.ptr()); });
  m.def(
      "advance_of", [](const py::object& number, const std::string& kind, const std::string& path) {
        return FollowedNumbers::current().advance_of(number.ptr(), trace::leaf_kind_of(kind), path);
      });
  m.def("advance", [](std::string path, std::int64_t by) {
    hints().said.advances.push_back({std::move(path), by});
  });
  m.def("assign", [](std::string path) { hints().assign(std::move(path)); });
  m.def("refuse", &refuse);
  m.def("join_path", &trace::join_path);
  m.def("on_one_line", &trace::on_one_line);
  m.def("observe", &observe);
  m.def("counters", &counters_dict);
  m.def("refusal_codes", [] {
    py::list codes;
    for (unsigned code = 1; code < 256; ++code) {
      const std::string_view name = name_of(static_cast<RefusalCode>(code));
      if (name != "unknown") codes.append(std::string(name));
    }
    return codes;
  });
}

}  // namespace
}  // namespace steptape::python

PYBIND11_MODULE(_engine, m) { steptape::python::define(m); }
