#include <Python.h>
#include <pybind11/stl.h>

#include <map>
#include <utility>

#include "python/engine/formulas.h"
#include "python/engine/function_modes.h"
#include "python/engine/locate.h"
#include "python/engine/own.h"
#include "python/engine/recorder.h"
#include "python/engine/step.h"
#include "recorder/notes.h"
#include "session/deferred.h"
#include "steptape/counters.h"
#include "steptape/error.h"
#include "steptape/player.h"
#include "trace/path.h"
#include "trace/text_parts.h"

/// The extension module steptape._engine: what the Python package calls.
namespace steptape::python {
namespace {

/// The notes of the recording that is under way; probes run in one.
recorder::Notes& notes() {
  recorder::Notes* current = recorder::Notes::current();
  if (current == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition, "no step is being recorded in this thread");
  }
  return *current;
}

trace::Value number_of(const py::handle& value) {
  if (PyBool_Check(value.ptr())) return {value.ptr() == Py_True};
  if (PyFloat_Check(value.ptr())) return {trace::Real{PyFloat_AS_DOUBLE(value.ptr())}};
  return {py::cast<std::int64_t>(value)};
}

/// Numbers as (value, formula, position in a list or -1).
void announce(const py::list& numbers) {
  std::vector<recorder::Notes::Number> announced;
  for (const py::handle& item : numbers) {
    const auto number = py::reinterpret_borrow<py::tuple>(item);
    const auto position = py::cast<std::int64_t>(number[2]);
    announced.push_back({number_of(number[0]), formula_of(notes(), number[1]),
                         position < 0 ? trace::kNone : static_cast<trace::Index>(position)});
  }
  notes().announce(std::move(announced));
}

/// The number went where it is not followed: what the formula gives must stay what it gave. What
/// follows from a read escapes with all that was read.
void escape(const trace::Formula& formula, double value) {
  const auto is_read = [](const trace::Node& node) {
    return node.operation == trace::Operation::kLeaf &&
           notes().leaves()[node.leaf].kind == trace::LeafKind::kHostRead;
  };
  const trace::Formula stays = trace::same_bits(formula, trace::constant(value));
  const bool is_held = trace::is_well_formed(stays, notes().leaves().size());
  if (is_held && std::ranges::none_of(formula.nodes, is_read)) {
    notes().require(stays, true);
    return;
  }
  for (const trace::Node& node : formula.nodes) {
    if (node.operation == trace::Operation::kLeaf) notes().escape(node.leaf);
  }
}

/// Numbers that entered no op have escaped: the function did something else with them.
void withdraw() {
  for (const recorder::Notes::Number& number : notes().announced()) {
    escape(number.formula, trace::number_of(number.value));
  }
  notes().withdraw();
}

void refuse(const std::string& code, const std::string& message, const std::string& place) {
  Refusal refusal;
  refusal.code = refusal_code_of(code);
  refusal.message = message;
  refusal.place = place;
  notes().refuse(std::move(refusal));
}

/// Keeps `function` until nobody looks any more; outside a step it is called at once.
void observe(const py::object& tensor, py::function function) {
  if (!is_tensor(tensor.ptr())) {
    throw Error(ErrorCode::kInvalidArgument,
                "observe: the first argument is a " + type_name(tensor.ptr()) + ", not a tensor");
  }
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

py::list list_of(const std::vector<at::Tensor>& tensors) {
  py::list list;
  for (const at::Tensor& tensor : tensors) list.append(object_of(tensor));
  return list;
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

void define(py::module_& m) {
  watch_function_modes();
  recorder::Notes::set_locator(&locate);
  recorder::Notes::set_collector([] {
    const py::gil_scoped_acquire gil;
    PyGC_Collect();
  });
  m.def("set_foreign_folders", [](const py::list& folders) {
    std::vector<std::string> names;
    for (const py::handle& folder : folders) names.push_back(py::cast<std::string>(folder));
    set_foreign_folders(std::move(names));
  });
  m.def("set_watched_folders", &watch::Watcher::set_folders);
  m.def("set_numbers", &watch::Watcher::set_numbers);
  m.def("set_escape",
        [](const py::object& function) { watch::Watcher::set_escape(function.ptr()); });
  m.def("discard", [] { notes().discard(); });
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
      .def("capture", &Tracked::capture)
      .def("changes", &Tracked::changes)
      .def("counters", &Tracked::counters)
      .def("assign_again", &Tracked::assign_again)
      .def("begin_watch", &Tracked::begin_watch)
      .def("begin_numbers", &Tracked::begin_numbers)
      .def("end_watch", &Tracked::end_watch)
      .def("place_of_write", &Tracked::place_of_write)
      .def("note_moving", &Tracked::note_moving)
      .def("take_news", &Tracked::take_news)
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
      .def("input_names", &Step::input_names)
      .def("__call__", &Step::call)
      .def("stats", &Step::stats)
      .def("explain_plans", &Step::explain_plans)
      .def("invalidate", &Step::invalidate)
      .def("is_inside", &Step::is_inside)
      .def("refuse_always", &Step::refuse_always)
      .def("save", &Step::save);

  py::class_<PlayerStep>(m, "PlayerStep")
      .def("run",
           [](PlayerStep& step, const py::list& inputs) {
             const std::vector<at::Tensor> results = step.run(tensors_of(inputs));
             return py::make_tuple(list_of(results), py::cast(step.numbers()));
           })
      .def("check",
           [](const PlayerStep& step, const py::list& inputs) -> py::object {
             const Verdict verdict = step.check(tensors_of(inputs));
             if (verdict) return py::none();
             return py::str(verdict.text());
           })
      .def("inputs", [](const PlayerStep& step) { return list_of(step.inputs()); })
      .def("structure", &PlayerStep::structure);
  py::class_<Player>(m, "Player")
      .def(py::init([](const std::string& path, const std::string& environment) {
        LoadOptions options;
        options.environment = environment_of(environment);
        return steptape::load(path, options);
      }))
      .def("steps", [](const Player& player) { return py::cast(player.steps()); })
      .def("step", &Player::step, py::keep_alive<0, 1>())
      .def("state", [](const Player& player) { return list_of(player.state()); })
      .def("tensor", [](const Player& player,
                        const std::string& path) { return object_of(player.tensor(path)); })
      .def("scalars", [](const Player& player) { return py::cast(player.scalars()); })
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
    py::object held = held_at(owner.ptr(), key.is_none() ? nullptr : key.ptr());
    return held ? held : py::object(py::none());
  });
  m.def("put_at", [](const py::object& owner, const py::object& key, const py::object& value) {
    put_at(owner.ptr(), key.is_none() ? nullptr : key.ptr(), value.ptr());
  });
  m.def("follow_host_value",
        [](const std::string& name) { notes().leaf(trace::LeafKind::kHostValue, name); });
  m.def("is_recording", [] { return recorder::Notes::current() != nullptr; });
  m.def("announce", &announce);
  m.def("withdraw", &withdraw);
  m.def("require", [](const py::tuple& formula, bool is_nonzero) {
    notes().require(formula_of(notes(), formula), is_nonzero);
  });
  m.def("escape", [](const py::tuple& formula, double value) {
    escape(formula_of(notes(), formula), value);
  });
  m.def("advance", [](std::string path, std::int64_t by) { notes().advance(std::move(path), by); });
  m.def("refuse", &refuse);
  m.def("enter_module", [](std::string path, const py::handle& module) {
    notes().enter_module(std::move(path), module.ptr());
  });
  m.def("join_path", &trace::join_path);
  m.def("on_one_line", &trace::on_one_line);
  m.def("set_own_hook_class", [](py::type type) {
    own_hook_class = reinterpret_cast<PyTypeObject*>(type.release().ptr());
  });
  m.def("stand_in", [](const py::function& function, const py::object& original) {
    add_stand_in(function.ptr(), original.ptr());
  });
  m.def("leave_module", [](const py::handle& module) { notes().leave_module(module.ptr()); });
  m.def("locate", &locate);
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
