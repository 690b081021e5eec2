#include <algorithm>
#include <string>
#include <string_view>

#include "python/engine/structure.h"
#include "python/engine/watch/call.h"

/// Calls whose result no guard can ask for, or whose effect no replay has: clocks, files, random
/// generators of others, locks, streams. Each is refused by name.
namespace steptape::python::watch {
namespace {

/// Whether a lock that is taken now is one of functools' or logging's own, which guards nothing but
/// what they keep (a `cached_property` has one up to Python 3.11).
bool guards_a_cache() {
  const auto is_of = [globals = PyEval_GetGlobals()](const char* module) {
    const auto found = stolen(PyImport_GetModule(py::str(module).ptr()));
    return found && globals == PyModule_GetDict(found.ptr());
  };
  return is_of("functools") || is_of("logging");
}

std::size_t recorded_ops() {
  const recorder::FrontendHints* hints = recorder::FrontendHints::current();
  return hints == nullptr ? 0 : hints->ops();
}

/// Whether a class, or one that it is made of, is C's of this package: "datetime.".
bool is_made_of(PyTypeObject* type, std::string_view package) {
  return std::ranges::any_of(bases_of(type), [package](PyTypeObject* base) {
    return std::string_view(base->tp_name).starts_with(package);
  });
}

}  // namespace

/// A lock keeps another thread from what the step does meanwhile. Where that is to read, and to
/// write what it takes back, a replay that begins while nobody has the lock does the same.
void Watcher::take_lock(PyObject* lock) {
  if (type_name(lock) != "_thread.lock" || !exists(lock)) return;
  if (py::cast<bool>(borrowed(lock).attr("locked")())) return refuse_lock(lock);
  read(Kind::kLocked, lock, nullptr, path_of(lock) + ".locked()");
  locks_.push_back({lock, recorded_ops()});
}

bool Watcher::give_back_lock(PyObject* lock, const std::string& method) {
  if (method != "__exit__" || locks_.empty() || locks_.back().lock != lock) return false;
  const bool computes = locks_.back().ops != recorded_ops();
  locks_.pop_back();
  return !computes;
}

void Watcher::end() {
  for (const Lock& lock : locks_) refuse_lock(lock.lock);
  for (const auto& [position, lock] : written_under_lock_) {
    if (slots_->slot(position).is_changed || !slots_->same(position)) refuse_lock(lock);
  }
}

void Watcher::refuse_lock(PyObject* lock) {
  refuse("the step takes a lock (`" + path_of(lock) + "`), which a replay does not do");
}

bool Watcher::is_from_outside(const Call& made, const std::string& name, PyObject* self) {
  const std::string type = self == nullptr || PyModule_Check(self) ? "" : type_name(self);
  static PyObject* const generators = attribute_type("_random", "Random");
  static PyObject* const own = attribute_type("random", "_inst");
  const bool is_numpys = made.module.starts_with("numpy.random") ||
                         (!type.empty() && is_made_of(Py_TYPE(self), "numpy.random."));
  const bool is_generator =
      is_numpys || (self != nullptr && !type.empty() &&
                    PyType_IsSubtype(Py_TYPE(self), as_type(generators)) != 0);
  if (is_generator) escape(made);
  if (is_generator && !name.starts_with("__") && name != "getstate" && name != "get_state") {
    const bool is_pythons = !is_numpys;
    const bool seeds_itself =
        name == "seed" && (made.arguments.empty() || made.arguments.front() == Py_None);
    const bool is_own = !exists(self) && self != own && !seeds_itself;
    if (!is_own || !is_pythons)
      refuse(is_pythons ? "the step draws from Python's `random`"
                        : "the step draws from NumPy's random generators",
             RefusalCode::kHostRandom);
    return true;
  }
  if (is_numpys && name == "get_state") {
    refuse("the step asks NumPy's random generator for its state", RefusalCode::kHostRandom);
    return true;
  }
  const bool tells_who_runs = (made.module == "posix" && name == "getpid") ||
                              (made.module == "_thread" && name.starts_with("get_")) ||
                              (made.module == "_asyncio" && made.arguments.empty());
  if (tells_who_runs) {
    read(Kind::kRunning, made.callee, nullptr, made.module + "." + name + "()");
    return true;
  }
  const bool is_clock =
      made.module == "time" ||
      (self != nullptr && PyType_Check(self) && is_made_of(as_type(self), "datetime.") &&
       (name == "now" || name == "today" || name == "utcnow"));
  const bool is_chance = (made.module == "_uuid" && name.starts_with("generate_")) ||
                         (made.module == "_ssl" && name.starts_with("RAND_"));
  if (is_chance) {
    refuse("the step draws from the operating system (`" + name + "`)", RefusalCode::kHostRandom);
    return true;
  }
  if (is_clock && name != "sleep") {
    refuse("the step reads the clock (`" + name + "`)");
    return true;
  }
  const bool is_system = made.module == "posix" || made.module == "resource" ||
                         made.module == "io" || made.module == "_io" || made.module == "select" ||
                         made.module == "fcntl" ||
                         (made.module == "builtins" && (name == "open" || name == "input"));
  // what CPython's posixpath does with a path's text
  constexpr std::string_view kOfTexts = "fspath _path_normpath _path_splitroot _path_splitroot_ex";
  if (is_system && !is_one_of(name, kOfTexts)) {
    refuse("the step asks the operating system (`" + name + "`)");
    return true;
  }
  // what is set gives what was there before, in its token, and may be that again in the end
  if (type == "_contextvars.ContextVar") {
    read(Kind::kVariable, self, nullptr, path_of(self) + ".get()");
    return true;
  }
  if (made.module == "sys" && (name == "exc_info" || name == "exception")) {
    look_at_thread("sys." + name + "()");
    load_handled();
    return true;
  }
  if (made.module == "sys" && name.starts_with("_getframe")) {  // of the caller, or further out
    look_at_thread("sys." + name + "()");
    const bool has_depth = !made.arguments.empty() && PyLong_Check(made.arguments.front());
    const long depth = has_depth ? PyLong_AsLong(made.arguments.front()) : 0;
    auto* frame = reinterpret_cast<PyFrameObject*>(Py_XNewRef(PyEval_GetFrame()));
    for (long i = 0; i < depth && frame != nullptr; ++i) Py_SETREF(frame, PyFrame_GetBack(frame));
    if (frame != nullptr) refuse_outer(frame);
    Py_XDECREF(frame);
    return true;
  }
  if (made.module == "sys" && name.starts_with("_current_")) {
    refuse("the step looks at the frames of all threads");
    return true;
  }
  if ((type == "torch.Stream" || type == "torch.Event") && !name.starts_with("__")) {
    refuse("the step uses a stream or an event of its own (`" + name +
           "`), which a replay does not");
    return true;
  }
  if (type.starts_with("_thread._local") || type.starts_with("_ctypes.")) {
    refuse("the step uses a " + type + ", whose content cannot be compared");
    return true;
  }
  if ((type.ends_with("Lock") || type == "_thread.lock") && exists(self)) {
    const bool is_known =
        guards_a_cache() || (type == "_thread.lock" && give_back_lock(self, name));
    if (!is_known) refuse_lock(self);
    return true;
  }
  const bool is_setter = (made.module == "sys" &&
                          (name.starts_with("set") || name == "audit" || name == "addaudithook")) ||
                         (made.module == "gc" && name != "collect" && !name.starts_with("get") &&
                          name != "isenabled") ||
                         (made.module == "_signal" && name.starts_with("s")) ||
                         (made.module == "_signal" && name == "alarm") ||
                         (made.module == "_locale" && name == "setlocale") ||
                         (made.module == "_socket" && name == "setdefaulttimeout");
  if (is_setter) {
    refuse("the step calls `" + made.module + "." + name + "`, which a replay does not do");
    return true;
  }
  const bool asks_for_holders = (made.module == "sys" && name == "getrefcount") ||
                                (made.module == "gc" && name.starts_with("get")) ||
                                (made.module == "_weakref" && name.starts_with("getweakref"));
  if (asks_for_holders) {
    refuse("the step asks the interpreter what holds its objects (`" + name + "`)");
    return true;
  }
  if (made.module == "_contextvars" && name == "copy_context") {
    refuse("the step copies its context, whose variables cannot be compared");
    return true;
  }
  if (name == "__subclasses__" && self != nullptr && PyType_Check(self)) {
    refuse("the step asks for the subclasses of `" + path_of(self) +
           "`, which come with each class that is made");
    return true;
  }
  if (type.starts_with("_io.") && name.starts_with("read")) {
    refuse("the step reads a file (`" + name + "`)");
    return true;
  }
  return false;
}

bool Watcher::refuse_output(std::string_view name) {
  refuse("the step prints or writes (`" + std::string(name) + "`), which a replay does not do");
  return false;
}

/// The interpreter tells of files, data bases and sockets whoever opens them, code of C's, too:
/// https://docs.python.org/3/library/audit_events.html.
void Watcher::note_event(std::string_view event) {
  constexpr std::string_view kAreas = "open socket sqlite3 mmap subprocess";
  if (unwatched_ != 0 || !is_one_of(event.substr(0, event.find('.')), kAreas)) return;
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return;
  const auto code = stolen(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  auto* const running = reinterpret_cast<PyCodeObject*>(code.ptr());
  const bool imports = view_of(running->co_filename).starts_with("<frozen ");
  if (imports || whose(running) == Whose::kSteptapes) return;
  refuse("the step asks the operating system (`" + std::string(event) + "`)");
}

/// No op shows what a generator was seeded with. Its state may be taken, to be set again.
bool Watcher::call_of_generator(PyObject* generator, std::string_view name,
                                std::span<PyObject* const> arguments) {
  constexpr std::string_view kAsks = "seed initial_seed get_offset graphsafe_get_state";
  constexpr std::string_view kSets = "manual_seed set_state set_offset graphsafe_set_state";
  if (name == "get_state") {
    awaited_.back().state_of = generator;
    return begin_ops({}, Reads::kInternal);
  }
  for (PyObject* argument : arguments) FollowedNumbers::current().escape(argument);
  if (is_one_of(name, kAsks)) {
    refuse("the step asks a generator of torch's where it stands (`" + std::string(name) +
           "`), which is elsewhere in each call");
  }
  // a state that it has had in this call is put back, whichever that is
  const auto is_own = [this, generator](PyObject* state) {
    if (!is_tensor(state) || !tensor_of(state).has_storage()) return false;
    const auto found = states_of_.find(tensor_of(state).storage().unsafeGetStorageImpl());
    return found != states_of_.end() && found->second == generator;
  };
  if (is_one_of(name, kSets) && std::ranges::none_of(arguments, is_own)) {
    refuse("the step sets a generator (`" + std::string(name) +
               "`) to a state that it has not had in this call",
           RefusalCode::kGeneratorSeek);
  }
  return false;
}

/// Of streams, events and graphs, of the device's allocator and of seeds no op tells.
void Watcher::set_by_torch(const Call& made) {
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(made.callee));
  const std::string_view name = view_of(code->co_name);
  if (made.arguments.size() < 2 || !is_part_of_model(made.arguments[0])) return;
  if (name == "__setattr__") store_attribute(made.arguments[0], made.arguments[1], nullptr);
  if (name == "__delattr__") delete_attribute(made.arguments[0], made.arguments[1], nullptr);
}

void Watcher::refuse_untold(PyObject* function) {
  const std::string module = text_of(member(function, "__module__").ptr());
  const std::string name = text_of(member(function, "__qualname__").ptr());
  const bool is_of_files =
      (module == "torch.serialization" && (name == "save" || name == "load")) ||
      (module.starts_with("torch.jit") && name.ends_with("save"));
  if (is_of_files) {
    refuse("the step reads or writes a file (`" + module + "." + name + "`)");
  }
  if (!module.starts_with("torch.cuda")) return;
  const bool is_chosen = module == "torch.cuda" && (name == "stream" || name == "set_stream");
  // the others of these modules make one, compare it, or only ask
  const bool is_method = name.find('.') != name.npos && name.find("__") == name.npos;
  if (is_chosen ||
      (is_method && (module == "torch.cuda.streams" || module == "torch.cuda.graphs"))) {
    refuse("the step uses a stream, an event or a graph of its own (`" + name +
           "`), which a replay does not");
  } else if (module == "torch.cuda.memory" && name.find("mem") != name.npos &&
             !name.starts_with("reset_") && !name.starts_with("set_")) {
    refuse("the step asks the device's allocator (`" + name + "`)");
  }
}

}  // namespace steptape::python::watch
