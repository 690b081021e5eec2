// CPython 3.10 and 3.11: a trace function in C that asks for each opcode (PyEval_SetTrace). The
// interpreter saves the stack pointer of a frame before it calls one, so that operands can be read
// where they lie.
#include <Python.h>

#include "python/engine/watch/instruction.h"
#if STEPTAPE_KNOWS_BYTECODE && PY_VERSION_HEX < 0x030C0000

#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#include <frameobject.h>
#endif

#include <opcode.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "python/engine/watch/opcodes.h"

namespace steptape::python::watch {
namespace {

struct State {
  Listener* listener = nullptr;
  std::vector<Told> told;            ///< the innermost frame's last
  std::vector<const void*> awaited;  ///< frames whose end the listener waits for, outermost first
  PyObject* keywords = nullptr;      ///< of the call that comes next in its frame
  PyCodeObject* newest = nullptr;
  const unsigned char* bytes = nullptr;              ///< of the newest
  std::unordered_map<PyCodeObject*, PyObject*> all;  ///< bytecode as it was compiled, by code
};
thread_local State state_of_thread;

/// The bytecode as it was compiled: what the interpreter runs may be specialized.
const unsigned char* bytes_of(State& state, PyCodeObject* code) {
  if (code == state.newest) return state.bytes;
  PyObject*& bytes = state.all[code];
  if (bytes == nullptr) {
#if PY_VERSION_HEX >= 0x030B0000
    bytes = PyCode_GetCode(code);
#else
    bytes = Py_NewRef(code->co_code);
#endif
    Py_INCREF(code);
  }
  state.newest = code;
  state.bytes = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes));
  return state.bytes;
}

void forget_codes(State& state) {
  for (auto& [code, bytes] : state.all) {
    Py_DECREF(bytes);
    Py_DECREF(code);
  }
  state.all.clear();
  state.newest = nullptr;
}

#if PY_VERSION_HEX >= 0x030B0000
const void* id_of(PyFrameObject* frame) { return frame->f_frame; }
PyCodeObject* code_of(PyFrameObject* frame) { return frame->f_frame->f_code; }
int offset_of(PyFrameObject* frame) {
  return _PyInterpreterFrame_LASTI(frame->f_frame) * static_cast<int>(sizeof(_Py_CODEUNIT));
}
PyObject* function_of(PyFrameObject* frame) {
  return reinterpret_cast<PyObject*>(frame->f_frame->f_func);
}
void read_frame(PyFrameObject* object, Place& at) {
  _PyInterpreterFrame* frame = object->f_frame;
  at.globals = frame->f_globals;
  at.builtins = frame->f_builtins;
  at.locals = frame->f_locals;
  at.fast = frame->localsplus;
  at.top = frame->localsplus + frame->stacktop;
  at.bottom = frame->localsplus + at.code->co_nlocalsplus;
}
#else
const void* id_of(PyFrameObject* frame) { return frame; }
PyCodeObject* code_of(PyFrameObject* frame) { return frame->f_code; }
int offset_of(PyFrameObject* frame) {
  return frame->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT));
}
PyObject* function_of(PyFrameObject*) { return nullptr; }
void read_frame(PyFrameObject* frame, Place& at) {
  at.globals = frame->f_globals;
  at.builtins = frame->f_builtins;
  at.locals = frame->f_locals;
  at.fast = frame->f_localsplus;
  at.bottom = frame->f_valuestack;
  at.top = frame->f_valuestack + frame->f_stackdepth;
}
#endif

/// Without what read_frame reads.
Place place_of(State& state, PyFrameObject* frame) {
  Place at{};
  at.frame = id_of(frame);
  at.code = code_of(frame);
  at.offset = offset_of(frame);
  const unsigned char* bytes = bytes_of(state, at.code) + at.offset;
  at.opcode = bytes[0];
  at.argument = bytes[1];
  // the instruction that it belongs to gets no event of its own
  while (is_extended_argument(at.opcode)) {
    bytes += sizeof(_Py_CODEUNIT);
    at.opcode = bytes[0];
    at.argument = at.argument << 8 | bytes[1];
  }
  return at;
}

/// What a frame has reported last is over. `object` is that frame, which stands at `at` now; null
/// where it threw.
void settle(State& state, const void* frame, PyFrameObject* object, Place* at) {
  if (state.told.empty() || state.told.back().left.frame != frame) return;
  const Told told = state.told.back();
  state.told.pop_back();
  if (!told.is_awaited) return;
  if (at != nullptr) read_frame(object, *at);
  state.listener->after(at == nullptr ? nullptr : result_of(told.left, *at));
}

void on_opcode(State& state, PyFrameObject* frame) {
  Place at = place_of(state, frame);
  if (is_rest_of_call(at.opcode)) return;
  settle(state, at.frame, frame, &at);
  if (sets_keywords(at.opcode)) {
    state.keywords = keywords_of(at);
    return;
  }
  if (!is_reported(at.opcode)) return;
  read_frame(frame, at);
  at.keywords = state.keywords;
  Instruction instruction = decode(at);
  if (instruction.operation == Operation::kCall) state.keywords = nullptr;
  if (instruction.operation == Operation::kNone) return;
  if (instruction.operation == Operation::kGiveOut) {
    const Pending* caller = state.told.empty() ? nullptr : &state.told.back().left;
    instruction.is_own = caller != nullptr && state.told.back().is_awaited;
    const bool is_for_c = goes_to_c(at, caller);
    if (is_for_c) state.listener->before(instruction);
#ifdef YIELD_FROM
    if (at.opcode == YIELD_FROM) {  // which also takes the next item, and leaves its frame with it
      instruction.operation = Operation::kNext;
      instruction.is_own = false;
      const bool is_awaited = state.listener->before(instruction);
      Pending pending = pending_at(at, instruction);
      if (is_for_c) pending.generators = {};
      state.told.push_back({std::move(pending), is_awaited});
    }
#endif
    return;
  }
  const bool is_awaited = state.listener->before(instruction);
  state.told.push_back({pending_at(at, instruction), is_awaited});
}

/// Whether a generator is told of that has begun before.
bool goes_on([[maybe_unused]] State& state, PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  const Place at = place_of(state, frame);
  return at.opcode != RESUME || at.argument != 0;
#else
  return frame->f_lasti >= 0;
#endif
}

/// What a function that begins is given, in `fast`, by position and by name; a cell where it closes
/// over one. CPython 3.10 keeps those cells elsewhere: then in `with_cells`.
PyObject* const* arguments_of([[maybe_unused]] PyCodeObject* code, PyObject** fast,
                              [[maybe_unused]] std::vector<PyObject*>& with_cells) {
#if PY_VERSION_HEX < 0x030B0000
  if (code->co_cell2arg != nullptr) {
    with_cells.assign(fast, fast + code->co_argcount + code->co_kwonlyargcount + count_rest(code));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_cellvars); ++i) {
      const auto argument = static_cast<std::size_t>(code->co_cell2arg[i]);
      if (argument < with_cells.size()) with_cells[argument] = fast[code->co_nlocals + i];
    }
    return with_cells.data();
  }
#endif
  return fast;
}

void on_entry(State& state, PyFrameObject* frame) {
  PyCodeObject* code = code_of(frame);
  PyFrameObject* caller = PyFrame_GetBack(frame);
  const bool by_watched =
      caller != nullptr && caller->f_trace_opcodes != 0 && state.listener->leads(code_of(caller));
  Py_XDECREF(caller);
  frame->f_trace_lines = 0;
  frame->f_trace_opcodes = state.listener->wants(code, by_watched) ? 1 : 0;
  if (frame->f_trace_opcodes == 0 || goes_on(state, frame)) return;
  Place at{};
  at.code = code;
  read_frame(frame, at);
  std::vector<PyObject*> with_cells;
  PyObject* const* given = arguments_of(code, at.fast, with_cells);
  if (!state.told.empty()) note_method(state.told.back().left, id_of(frame), code, given);
  state.listener->enter(function_of(frame), code, given,
                        code->co_argcount + code->co_kwonlyargcount, by_watched);
  if (state.listener->awaits_end(code)) state.awaited.push_back(id_of(frame));
}

/// Where it returns, or is left by an exception.
void on_exit(State& state, PyFrameObject* frame) {
  settle(state, id_of(frame), nullptr, nullptr);
  if (state.awaited.empty() || state.awaited.back() != id_of(frame)) return;
  state.awaited.pop_back();
  state.listener->leave();
}

int on_event(PyObject*, PyFrameObject* frame, int what, PyObject*) {
  State& state = state_of_thread;  // asked once: it costs a call
  if (state.listener == nullptr) return 0;
  switch (what) {
    case PyTrace_CALL:
      on_entry(state, frame);
      break;
    case PyTrace_OPCODE:
      on_opcode(state, frame);
      break;
    case PyTrace_EXCEPTION:
      settle(state, id_of(frame), nullptr, nullptr);
      break;
    case PyTrace_RETURN:
      on_exit(state, frame);
      break;
    default:
      break;
  }
  return 0;
}

/// What is waited for when the watch ends is not told any more.
void give_up_told(State& state) {
  while (!state.told.empty()) settle(state, state.told.back().left.frame, nullptr, nullptr);
}

}  // namespace

bool start(Listener& listener, const char** why) {
  if (!knows_opcodes(why)) return false;
  if (PyThreadState_Get()->c_tracefunc != nullptr) {
    *why = "a tracer, such as a debugger or coverage, is at work in this thread";
    return false;
  }
  state_of_thread.listener = &listener;
  state_of_thread.told.clear();
  state_of_thread.awaited.clear();
  PyEval_SetTrace(&on_event, nullptr);
  return true;
}

Listener* current() { return state_of_thread.listener; }

bool stop() {
  const bool is_ours = PyThreadState_Get()->c_tracefunc == &on_event;
  if (is_ours) PyEval_SetTrace(nullptr, nullptr);
  State& state = state_of_thread;
  give_up_told(state);
  state.listener = nullptr;
  forget_codes(state);
  return is_ours;
}

}  // namespace steptape::python::watch

#endif
