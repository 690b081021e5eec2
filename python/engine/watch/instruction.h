#pragma once

#include <Python.h>

#include <cstdint>
#include <string_view>

/// The versions of CPython whose bytecode is known here, with the interpreter's lock.
#if PY_VERSION_HEX >= 0x030A0000 && PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
#define STEPTAPE_KNOWS_BYTECODE 1
#else
#define STEPTAPE_KNOWS_BYTECODE 0
#endif

/// The bytecode that a thread executes, in words that all versions of CPython share. An adapter for
/// each version turns what the interpreter is about to run into these; whoever watches knows
/// neither opcodes nor the layout of frames.
namespace steptape::python::watch {

/// Whether the name is one of these words, which have a blank between them.
constexpr bool is_one_of(std::string_view name, std::string_view words) {
  if (name.empty()) return false;
  for (std::size_t at = words.find(name); at != words.npos; at = words.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || words[at - 1] == ' ';
    if (begins && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

/// What an operator does with numbers; `kOther` is known for none.
enum class Operator : std::uint8_t {
  kOther,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kAnd,
  kOr,
  kXor,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,
  kNegate,
  kPlus,
};

/// What an instruction does to the state of the program. Instructions that touch fresh values and
/// local variables alone are not reported.
enum class Operation : std::uint8_t {
  kNone,
  kLoadGlobal,       ///< `name`, in `globals` or else in `builtins`
  kStoreGlobal,      ///< `name` becomes `first`
  kDeleteGlobal,     ///< `name`
  kLoadCell,         ///< `first` is the cell; `is_own` says that it was made by this frame
  kStoreCell,        ///< the cell `first` gets `second`
  kDeleteCell,       ///< the cell `first`
  kCloseOver,        ///< the cell `first` goes into a function that is being made
  kLoadAttribute,    ///< `first`.`name`
  kStoreAttribute,   ///< `first`.`name` becomes `second`
  kDeleteAttribute,  ///< `first`.`name`
  kLoadSuper,   ///< super(`first`, `second`).`name`; a super object of its own is kLoadAttribute
  kLoadItem,    ///< `first`[`second`], which may be a slice
  kStoreItem,   ///< `first`[`second`] becomes `third`
  kDeleteItem,  ///< `first`[`second`]
  kBinary,      ///< `first` with `second`: arithmetic, in place or not
  kCompare,     ///< `first` with `second`
  kIdentity,    ///< whether `first`, not None, is `second`
  kContains,    ///< whether `first` holds `second`
  kUnary,       ///< -, +, ~ of `first`
  kTest,        ///< whether `first`, no bool, is true
  kFormat,      ///< the text of `first`
  kIterate,     ///< an iterator over `first`
  kNext,        ///< the next item of the iterator `first`
  kSpread,      ///< all items of `first`
  kHash,     ///< each `stride`th of the `count` values at `arguments` becomes a key, or goes into a
             ///< set; no `after`
  kGiveOut,  ///< `first`, a number or a container, leaves its frame for code of C's, which `is_own`
             ///< says is that of the newest instruction whose `after` is to come; no `after`
  kLength,   ///< of `first`
  kMatchClass,  ///< whether `first` is of class `second` (a sequence or a mapping where that is
                ///< null), its attributes that the tuple `third` names, and the first `count` that
                ///< the class does
  kMatchKeys,   ///< the items of `first` under the keys in the tuple `second`
  kCall,        ///< `callee`; of `__exit__` that is given an exception no arguments are shown
  kEnter,       ///< `first` is the context of a `with`
  kImport,      ///< the module `name`
  kReraise,     ///< the exception that is being handled
  kRaise,       ///< `first`, an exception or its class
};

/// One instruction that is about to run. All objects are borrowed from the frame.
struct Instruction {
  Operation operation = Operation::kNone;
  bool is_own = false;
  const void* frame = nullptr;
  PyCodeObject* code = nullptr;
  int offset = 0;  ///< in bytes, for PyCode_Addr2Line
  PyObject* globals = nullptr;
  PyObject* builtins = nullptr;
  PyObject* name = nullptr;
  PyObject* first = nullptr;
  PyObject* second = nullptr;
  PyObject* third = nullptr;
  /// Where `second` stands on the stack above `first`, if so; both may be replaced.
  PyObject** second_at = nullptr;
  Operator made = Operator::kOther;  ///< of kBinary, kCompare and kUnary
  bool is_in_place = false;          ///< of kBinary: += and the like
  bool hashes = false;               ///< of kSpread: into a set
  bool is_mapping = false;           ///< of kSpread: into a dict
  // of a call
  PyObject* callee = nullptr;
  PyObject* const* arguments = nullptr;  ///< those by keyword last; of f(*a, **k) null
  Py_ssize_t count = 0;
  Py_ssize_t stride = 1;             ///< of kHash
  PyObject* keywords = nullptr;      ///< a tuple of the names of the last arguments, or null
  PyObject* spread = nullptr;        ///< of f(*a, **k): a
  PyObject* spread_named = nullptr;  ///< k, or null
};

/// How many of `*args` and `**kwargs` code takes: a tuple, a dict.
inline int count_rest(const PyCodeObject* code) {
  return ((code->co_flags & CO_VARARGS) != 0 ? 1 : 0) +
         ((code->co_flags & CO_VARKEYWORDS) != 0 ? 1 : 0);
}

/// Is told of what one thread executes between `start` and `stop`. Nothing that it does may run
/// code of the program's, or throw: it is called from the interpreter.
class Listener {
 public:
  virtual ~Listener() = default;
  /// Whether a frame of this code is to be watched that begins now. `by_watched`: called by one
  /// that is.
  virtual bool wants(PyCodeObject* code, bool by_watched) = 0;
  /// Whether what watched frames of this code call counts as called by a watched one.
  virtual bool leads(PyCodeObject* code) = 0;
  /// `instruction` is about to run. True: `after` is to be called with what it leaves.
  virtual bool before(const Instruction& instruction) = 0;
  /// The place on the stack where the newest instruction that `before` has asked for left its
  /// result; null where it threw or leaves none (a store, a test, the end of an iterator). What
  /// stands there may be replaced: the interpreter goes on with that.
  virtual void after(PyObject** result) = 0;
  /// A frame begins that is watched. `function`: where the interpreter knows it, or null. After its
  /// `count` arguments stand those of count_rest.
  /// `by_watched`: called by another one, itself or through code of C's.
  virtual void enter(PyObject* function, PyCodeObject* code, PyObject* const* arguments,
                     Py_ssize_t count, bool by_watched) = 0;
  /// Whether `leave` is to be called when a frame of this code ends.
  virtual bool awaits_end(PyCodeObject* code) = 0;
  /// The newest frame whose end is awaited returns, or is left by an exception.
  virtual void leave() = 0;
};

/// Reports what this thread executes to `listener` from here on. One at a time a thread; false, and
/// the reason in `why`, where something else stands in the way.
bool start(Listener& listener, const char** why);
/// Whether calling this runs code of C's that looks at what it is given, and at what functions
/// return to it.
bool calls_c(PyObject* callee);
/// Whether it is `iter` of one argument, which gives what `__iter__` of that gives.
bool is_iter(PyObject* callee, std::size_t count);
/// Whether it makes a container or iterator of what it is given, item by item.
bool goes_over_arguments(PyObject* callee);
/// Who is told of what this thread executes, or null.
Listener* current();
/// Ends that. False: some of it was not seen, as somebody else has taken the interpreter's place
/// for a tracer meanwhile.
bool stop();
/// The name of an opcode of this interpreter that is neither put into words nor known to touch
/// fresh values and local variables alone; null: there is none, and `start` does not refuse for
/// that.
const char* unknown_opcode();

}  // namespace steptape::python::watch
