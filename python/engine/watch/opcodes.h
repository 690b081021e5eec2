#pragma once

#include <array>
#include <vector>

#include "python/engine/watch/instruction.h"

namespace steptape::python::watch {

/// Where a frame stands, read by the adapter of this version of CPython.
struct Place {
  const void* frame;
  PyCodeObject* code;
  PyObject* globals;
  PyObject* builtins;
  PyObject* locals;  ///< a dict or another mapping of a module, class or exec; or null
  PyObject** fast;   ///< local variables, cells and free variables
  PyObject** top;    ///< after the last operand
  PyObject** bottom;
  int opcode;
  int argument;
  int offset;          ///< of the instruction, in bytes
  PyObject* keywords;  ///< the names that an instruction before a call has set, or null
  PyObject* slice;     ///< of an instruction that `takes_bounds`, made by the adapter
};

/// A method of an operand of an instruction, by its code, and what the instruction calls it with.
/// Objects are borrowed.
struct OwnMethod {
  const PyCodeObject* code;
  PyObject* self;
  PyObject* other;  ///< null: any
};

/// An instruction whose result the listener waits for.
struct Pending {
  const void* frame;
  Operation operation;
  bool is_paired;     ///< leaves something beside it: the object that a method is of, or null
  Py_ssize_t height;  ///< of the stack before it
  bool gives_to_c;    ///< what Python's code returns meanwhile is given to code of C's, which looks
                      ///< at it
  /// Generators whose items it hands on as they are: addresses, of objects that may be gone.
  std::array<const void*, 2> generators;
  /// Methods of Python's that make what it leaves, whatever else it gives to C.
  std::vector<OwnMethod> hand_on;
  const void* handing_on = nullptr;  ///< the frame of such a method that runs
};

/// An instruction that was reported, until the next of its frame or an exception there.
struct Told {
  Pending left;
  bool is_awaited;  ///< by the listener
};

/// Puts what is about to run into words: `Operation::kNone` for what touches fresh values and local
/// variables alone.
Instruction decode(const Place& at);
Pending pending_at(const Place& at, const Instruction& reported);
/// Where `left` has put its result, now that its frame stands at `at`; or null.
PyObject** result_of(const Pending& left, const Place& at);

/// Whether `decode` has words for an opcode with some argument.
bool is_reported(int opcode);
/// Whether there is no `unknown_opcode`; false with the reason.
bool knows_opcodes(const char** why);
/// Whether an opcode reads the bounds of a slice from the stack, and `decode` wants them as one
/// object.
bool takes_bounds(int opcode);
/// Whether the instruction goes on with the call that was reported at the one before it.
bool is_rest_of_call(int opcode);
/// Whether it sets the names of the arguments of the next call; `keywords_of` gives them.
bool sets_keywords(int opcode);
PyObject* keywords_of(const Place& at);
bool is_extended_argument(int opcode);
/// Whether what code of Python's returns, that runs while this does, is given to code of C's that
/// looks at it, and not on as what the instruction leaves.
bool gives_to_c(const Instruction& in);
/// Those whose result the instruction leaves: of an operator, an item, a comparison.
std::vector<OwnMethod> methods_that_hand_on(const Instruction& in);
/// What a frame that begins while `caller` runs is given: notes one that hands on what it returns.
void note_method(Pending& caller, const void* frame, PyCodeObject* code, PyObject* const* given);
/// The generators whose items the instruction leaves as they are, or puts into what it leaves.
std::array<const void*, 2> generators_of(const Instruction& in);
/// Whether what a frame gives out may be looked at by code of C's; `caller` is the instruction that
/// runs it, or null where nobody knows.
bool goes_to_c(const Place& at, const Pending* caller);

}  // namespace steptape::python::watch
