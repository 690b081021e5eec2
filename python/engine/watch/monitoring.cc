// CPython 3.12 and 3.13: a tool of sys.monitoring that is told of each instruction. Tracers of the
// program's own go on as they do.
#include "python/engine/watch/instruction.h"
#if STEPTAPE_KNOWS_BYTECODE && PY_VERSION_HEX >= 0x030C0000

#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

#include <array>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "python/engine/watch/layout.h"
#include "python/engine/watch/opcodes.h"

namespace steptape::python::watch {
namespace {

enum Event : std::uint8_t {
  kStart,
  kResume,
  kThrow,
  kInstruction,
  kLine,
  kRaise,
  kReturn,
  kUnwind,
  kEvents
};
constexpr std::array<const char*, kEvents> kNames = {
    "PY_START", "PY_RESUME", "PY_THROW", "INSTRUCTION", "LINE", "RAISE", "PY_RETURN", "PY_UNWIND"};

/// What all threads that are watched share, under the interpreter's lock.
struct Tool {
  int id = -1;
  int second = -1;  ///< another place, for `set_first_events_of`; or none
  int users = 0;
  PyObject* monitoring = nullptr;
  PyObject* set_local_events = nullptr;
  PyObject* disable = nullptr;
  Py_ssize_t extra = -1;  ///< where a code keeps its `Known`
  std::array<long, kEvents> events{};
  std::vector<int> others;                  ///< the places of tools that were there before
  std::unordered_set<PyCodeObject*> codes;  ///< with events of their own, and a reference each
};
Tool tool;

/// What is known of a code as long as it lives: what it does is the same in every call.
struct Known {
  explicit Known(PyCodeObject* code) : layout(code) {}
  Layout layout;
  bool has_room = false;  ///< for a second tool
};

/// A code that is watched, which is kept for that time.
class Watched {
 public:
  Watched(PyCodeObject* code, const Layout& layout) : code_(code), layout_(&layout) {
    Py_INCREF(code);
  }
  ~Watched() { Py_DECREF(code_); }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  const Layout& layout() const { return *layout_; }

 private:
  PyCodeObject* code_;
  const Layout* layout_;
};

struct State {
  Listener* listener = nullptr;
  std::vector<Told> told;  ///< the innermost frame's last
  PyCodeObject* newest = nullptr;
  const Layout* newest_layout = nullptr;
  std::unordered_map<PyCodeObject*, Watched> codes;  ///< that are watched
  /// Those that are watched, of the frames that have begun: one of Python's own library may not be
  /// where another of the same code is. A new frame takes the place of one that has ended.
  std::unordered_set<const void*> frames;
  std::vector<const void*> awaited;  ///< frames whose end the listener waits for, outermost first
  bool is_complete = true;
};
thread_local State state;

/// Sets an exception aside while the program's state is looked at.
class Aside {
 public:
  Aside() : raised_(PyErr_GetRaisedException()) {}
  ~Aside() { PyErr_SetRaisedException(raised_); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  PyObject* raised_;
};

bool succeeded(PyObject* result) {
  if (result == nullptr) PyErr_Clear();
  Py_XDECREF(result);
  return result != nullptr;
}

long number_of(PyObject* result) {
  const long number = result == nullptr ? 0 : PyLong_AsLong(result);
  succeeded(result);
  return number;
}

_PyInterpreterFrame* current_frame() {
#if PY_VERSION_HEX >= 0x030D0000
  return PyThreadState_Get()->current_frame;
#else
  return PyThreadState_Get()->cframe->current_frame;
#endif
}

PyCodeObject* code_of(const _PyInterpreterFrame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

bool set_events_of(PyCodeObject* code, long events, int id = tool.id) {
  PyObject* tool_id = PyLong_FromLong(id);
  PyObject* number = PyLong_FromLong(events);
  PyObject* arguments[] = {tool_id, reinterpret_cast<PyObject*>(code), number};
  PyObject* result = PyObject_Vectorcall(tool.set_local_events, arguments, 3, nullptr);
  Py_DECREF(tool_id);
  Py_DECREF(number);
  return succeeded(result);
}

/// Where one tool is told of a code and a second one comes (a tracer that the step sets), these
/// versions make room for both and forget whom they told of instructions. So there are two at
/// first; a code keeps the room.
bool set_first_events_of(PyCodeObject* code, Known& known, long events) {
  if (known.has_room || tool.second < 0) return set_events_of(code, events);
  set_events_of(code, tool.events[kLine], tool.second);
  known.has_room = set_events_of(code, events);
  set_events_of(code, 0, tool.second);
  return known.has_room;
}

/// Null when memory runs out.
Known* known_of(PyCodeObject* code) {
  auto* object = reinterpret_cast<PyObject*>(code);
  void* extra = nullptr;
  if (PyUnstable_Code_GetExtra(object, tool.extra, &extra) == 0 && extra != nullptr) {
    return static_cast<Known*>(extra);
  }
  auto known = std::make_unique<Known>(code);
  if (PyUnstable_Code_SetExtra(object, tool.extra, known.get()) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  return known.release();
}

const Layout* layout_of(State& of, PyCodeObject* code) {
  if (code == of.newest) return of.newest_layout;
  const auto found = of.codes.find(code);
  if (found == of.codes.end()) return nullptr;
  of.newest = code;
  return of.newest_layout = &found->second.layout();
}

/// Where two tools ask for the instructions of a code, these versions tell one of them alone.
bool is_told_to_others(PyCodeObject* code) {
  for (const int id : tool.others) {
    if (((number_of(PyObject_CallMethod(tool.monitoring, "get_events", "i", id)) |
          number_of(PyObject_CallMethod(tool.monitoring, "get_local_events", "iO", id,
                                        reinterpret_cast<PyObject*>(code)))) &
         tool.events[kInstruction]) != 0) {
      return true;
    }
  }
  return false;
}

/// Asks for the instructions of a code that runs for the first time; and for its lines, though
/// nobody is told of them: where the last tool that wants a line has enough of it, the instruction
/// that the line begins with would not be told either.
void watch(PyCodeObject* code) {
  if (state.codes.contains(code)) return;
  Known* known = known_of(code);
  if (known == nullptr) {
    state.is_complete = false;
    return;
  }
  state.codes.try_emplace(code, code, known->layout);
  state.is_complete &= known->layout.is_sound();
  if (tool.codes.contains(code)) return;
  if (is_told_to_others(code)) {
    state.is_complete = false;
    return;
  }
  tool.codes.insert(code);
  Py_INCREF(code);
  long events = tool.events[kInstruction] | tool.events[kLine];
  if (state.listener->awaits_end(code)) events |= tool.events[kReturn];
  state.is_complete &= set_first_events_of(code, *known, events);
}

Place place_of(_PyInterpreterFrame* frame, const Layout::Step& step, int offset) {
  Place at{};
  at.frame = frame;
  at.code = code_of(frame);
  at.globals = frame->f_globals;
  at.builtins = frame->f_builtins;
  at.locals = frame->f_locals;
  at.fast = frame->localsplus;
  at.bottom = frame->localsplus + at.code->co_nlocalsplus;
  at.top = at.bottom + step.depth;
  at.opcode = step.opcode;
  at.argument = step.argument;
  at.offset = offset;
  at.keywords = step.keywords;
  return at;
}

/// `at` is null where it threw.
void settle(State& here, const void* frame, const Place* at) {
  if (here.told.empty() || here.told.back().left.frame != frame) return;
  const Told told = here.told.back();
  here.told.pop_back();
  if (!told.is_awaited) return;
  here.listener->after(at == nullptr ? nullptr : result_of(told.left, *at));
}

/// An instruction of a frame that is no more was not followed by another: the interpreter has lost
/// some.
void give_up_told() {
  state.is_complete = false;
  settle(state, state.told.back().left.frame, nullptr);
}

void report(State& here, Place& at) {
  if (takes_bounds(at.opcode)) at.slice = PySlice_New(at.top[-2], at.top[-1], nullptr);
  Instruction instruction = decode(at);
  if (instruction.operation != Operation::kNone) {
    if (instruction.operation == Operation::kGiveOut) {
      const Pending* caller = here.told.empty() ? nullptr : &here.told.back().left;
      instruction.is_own = caller != nullptr && here.told.back().is_awaited;
      if (goes_to_c(at, caller)) here.listener->before(instruction);
    } else {
      const bool is_awaited = here.listener->before(instruction);
      here.told.push_back({pending_at(at, instruction), is_awaited});
    }
  }
  Py_XDECREF(at.slice);
}

PyObject* on_instruction(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  auto* code = reinterpret_cast<PyCodeObject*>(arguments[0]);
  State& here = state;
  const Layout* layout = here.listener == nullptr ? nullptr : layout_of(here, code);
  _PyInterpreterFrame* frame = current_frame();
  if (layout == nullptr || code_of(frame) != code) Py_RETURN_NONE;
  if (!here.frames.contains(frame)) Py_RETURN_NONE;
  const auto offset = static_cast<int>(PyLong_AsLong(arguments[1]));
  const Layout::Step& step = layout->at(offset);
  if (!step.is_of_interest || step.depth < 0) return Py_NewRef(tool.disable);
  Place at = place_of(frame, step, offset);
  settle(here, frame, &at);
  report(here, at);
  Py_RETURN_NONE;
}

/// The frame of Python's code that called this one, itself or through code of C's.
const _PyInterpreterFrame* caller_of(const _PyInterpreterFrame* frame) {
  const _PyInterpreterFrame* caller = frame->previous;
  while (caller != nullptr && caller->owner == FRAME_OWNED_BY_CSTACK) caller = caller->previous;
  return caller;
}

/// Of a frame that is new, or goes on.
template <bool kIsNew>
PyObject* begin(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  auto* code = reinterpret_cast<PyCodeObject*>(arguments[0]);
  _PyInterpreterFrame* frame = current_frame();
  if (state.listener == nullptr || code_of(frame) != code) Py_RETURN_NONE;
  const _PyInterpreterFrame* caller = caller_of(frame);
  const bool by_watched = state.frames.contains(caller) && state.listener->leads(code_of(caller));
  if (!state.listener->wants(code, by_watched)) {
    state.frames.erase(frame);
    Py_RETURN_NONE;
  }
  watch(code);
  if (!state.told.empty() && state.told.back().left.frame == frame) give_up_told();
  state.frames.insert(frame);
  const bool has_function = frame->f_funcobj != nullptr && PyFunction_Check(frame->f_funcobj);
  if (kIsNew) {
    if (!state.told.empty()) note_method(state.told.back().left, frame, code, frame->localsplus);
    state.listener->enter(has_function ? frame->f_funcobj : nullptr, code, frame->localsplus,
                          code->co_argcount + code->co_kwonlyargcount, by_watched);
    if (state.listener->awaits_end(code)) state.awaited.push_back(frame);
  }
  Py_RETURN_NONE;
}

PyObject* on_exception(PyObject*, PyObject* const*, Py_ssize_t) {
  if (state.listener != nullptr) settle(state, current_frame(), nullptr);
  Py_RETURN_NONE;
}

PyObject* on_exit(PyObject*, PyObject* const*, Py_ssize_t) {
  if (state.listener == nullptr) Py_RETURN_NONE;
  const _PyInterpreterFrame* frame = current_frame();
  settle(state, frame, nullptr);
  if (!state.awaited.empty() && state.awaited.back() == frame) {
    state.awaited.pop_back();
    state.listener->leave();
  }
  Py_RETURN_NONE;
}

/// What is called at each event; of a line nothing.
constexpr std::array<PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t), kEvents> kCallbacks = {
    &begin<true>, &begin<false>, &begin<false>, &on_instruction,
    nullptr,      &on_exception, &on_exit,      &on_exit};

PyObject* callback_of(std::size_t event) {
  static std::array<PyMethodDef, kEvents> methods;
  auto* const function = reinterpret_cast<void (*)()>(kCallbacks[event]);
  methods[event] = {kNames[event], reinterpret_cast<PyCFunction>(function), METH_FASTCALL, nullptr};
  return PyCFunction_New(&methods[event], nullptr);
}

void note_others() {
  tool.others.clear();
  for (int id = 0; id < 6; ++id) {
    PyObject* name = PyObject_CallMethod(tool.monitoring, "get_tool", "i", id);
    if (name != nullptr && name != Py_None) tool.others.push_back(id);
    succeeded(name);
  }
}

/// A free place, or -1. Those that are no tool's by convention come first.
int take_place() {
  for (const int id : {3, 4, 5, 2, 1, 0}) {
    if (succeeded(PyObject_CallMethod(tool.monitoring, "use_tool_id", "is", id, "steptape"))) {
      return id;
    }
  }
  return -1;
}

bool take_places() {
  note_others();
  tool.id = take_place();
  if (tool.id >= 0) tool.second = take_place();
  return tool.id >= 0;
}

bool read_monitoring() {
  if (tool.disable != nullptr) return true;
  if (tool.extra < 0) {
    tool.extra = PyUnstable_Eval_RequestCodeExtraIndex(
        [](void* extra) { delete static_cast<Known*>(extra); });
  }
  if (tool.extra < 0) return false;
  tool.monitoring = PySys_GetObject("monitoring");
  if (tool.monitoring == nullptr) return false;
  PyObject* events = PyObject_GetAttrString(tool.monitoring, "events");
  for (std::size_t i = 0; events != nullptr && i < kEvents; ++i) {
    PyObject* number = PyObject_GetAttrString(events, kNames[i]);
    tool.events[i] = number == nullptr ? 0 : PyLong_AsLong(number);
    Py_XDECREF(number);
  }
  Py_XDECREF(events);
  tool.disable = PyObject_GetAttrString(tool.monitoring, "DISABLE");
  tool.set_local_events = PyObject_GetAttrString(tool.monitoring, "set_local_events");
  Py_INCREF(tool.monitoring);
  PyErr_Clear();
  return tool.disable != nullptr && tool.set_local_events != nullptr;
}

bool set_callbacks(bool is_on) {
  bool is_done = true;
  for (std::size_t i = 0; i < kEvents; ++i) {
    PyObject* callback = is_on && kCallbacks[i] != nullptr ? callback_of(i) : Py_NewRef(Py_None);
    is_done &= succeeded(PyObject_CallMethod(tool.monitoring, "register_callback", "ilN", tool.id,
                                             tool.events[i], callback));
  }
  return is_done;
}

bool set_events(long events) {
  return succeeded(PyObject_CallMethod(tool.monitoring, "set_events", "il", tool.id, events));
}

bool is_still_ours() {
  PyObject* name = PyObject_CallMethod(tool.monitoring, "get_tool", "i", tool.id);
  const bool is_ours = name != nullptr && PyUnicode_Check(name) &&
                       PyUnicode_CompareWithASCIIString(name, "steptape") == 0;
  succeeded(name);
  return is_ours;
}

/// Leaves nothing behind in any code.
bool let_go() {
  const bool is_ours = is_still_ours();
  if (is_ours) {
    set_events(0);
    for (PyCodeObject* code : tool.codes) set_events_of(code, 0);
    set_callbacks(false);
    succeeded(PyObject_CallMethod(tool.monitoring, "free_tool_id", "i", tool.id));
  }
  if (tool.second >= 0) {
    succeeded(PyObject_CallMethod(tool.monitoring, "free_tool_id", "i", tool.second));
  }
  for (PyCodeObject* code : tool.codes) Py_DECREF(code);
  tool.codes.clear();
  tool.id = tool.second = -1;
  return is_ours;
}

}  // namespace

bool start(Listener& listener, const char** why) {
  const Aside aside;
  if (!knows_opcodes(why)) return false;
  if (state.listener != nullptr) {
    *why = "this thread is watched already";
    return false;
  }
  if (!read_monitoring()) {
    *why = "this Python has no sys.monitoring";
    return false;
  }
  if (tool.users == 0) {
    if (!take_places()) {
      *why = "all places for tools of sys.monitoring are taken";
      return false;
    }
    long events = 0;
    for (const Event event : {kStart, kResume, kThrow, kRaise, kUnwind}) {
      events |= tool.events[event];
    }
    if (!set_callbacks(true) || !set_events(events)) {
      let_go();
      *why = "sys.monitoring refuses its events";
      return false;
    }
  }
  ++tool.users;
  state = State();
  state.listener = &listener;
  return true;
}

Listener* current() { return state.listener; }

bool stop() {
  const Aside aside;
  while (!state.told.empty()) give_up_told();
  bool is_complete = state.is_complete && is_still_ours();
  if (--tool.users == 0) is_complete &= let_go();
  state = State();
  return is_complete;
}

}  // namespace steptape::python::watch

#endif
