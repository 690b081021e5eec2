#include "python/engine/watch/opcodes.h"

#include <algorithm>
#include <array>

#if STEPTAPE_KNOWS_BYTECODE
#include <opcode.h>
#if PY_VERSION_HEX >= 0x030C0000
#define Py_BUILD_CORE 1
#include <internal/pycore_intrinsics.h>
#undef Py_BUILD_CORE
#endif

namespace steptape::python::watch {
namespace {

PyObject* name_at(const Place& at, int index) { return PyTuple_GET_ITEM(at.code->co_names, index); }

/// The cell that LOAD_DEREF and its like mean.
PyObject* cell_at(const Place& at) {
#if PY_VERSION_HEX >= 0x030B0000
  return at.fast[at.argument];
#else
  return at.fast[at.code->co_nlocals + at.argument];
#endif
}

PyObject* name_of_cell(const Place& at) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyTuple_GET_ITEM(at.code->co_localsplusnames, at.argument);
#else
  const Py_ssize_t own = PyTuple_GET_SIZE(at.code->co_cellvars);
  return at.argument < own ? PyTuple_GET_ITEM(at.code->co_cellvars, at.argument)
                           : PyTuple_GET_ITEM(at.code->co_freevars, at.argument - own);
#endif
}

#if PY_VERSION_HEX >= 0x030B0000
/// What has a place among the locals, as the compiler notes it in the code.
constexpr int kCell = 0x40;
[[maybe_unused]] constexpr int kFree = 0x80;

int kind_at(const Place& at) {
  return static_cast<unsigned char>(PyBytes_AS_STRING(at.code->co_localspluskinds)[at.argument]);
}
#endif

bool is_own_cell(const Place& at) {
#if PY_VERSION_HEX >= 0x030B0000
  return (kind_at(at) & kCell) != 0;
#else
  return at.argument < PyTuple_GET_SIZE(at.code->co_cellvars);
#endif
}

/// Whether a name stands in the namespace of a class or an exec, which may be any mapping.
bool is_in(PyObject* locals, PyObject* name) {
  return !PyDict_Check(locals) || PyDict_GetItemWithError(locals, name) != nullptr;
}

void item(PyObject* object, PyObject* key, Instruction& made) {
  made.operation = Operation::kLoadItem;
  made.first = object;
  made.second = key;
}

/// A name of a module, or of a class or an exec with the namespace `locals`.
void load_name(const Place& at, PyObject* locals, PyObject* name, Instruction& made) {
  if (locals != nullptr && locals != at.globals && is_in(locals, name)) {
    item(locals, name, made);
    return;
  }
  made.operation = Operation::kLoadGlobal;
  made.name = name;
}

void change_name(const Place& at, Operation of_global, Operation of_item, Instruction& made) {
  PyObject* name = name_at(at, at.argument);
  PyObject* value = of_global == Operation::kStoreGlobal ? at.top[-1] : nullptr;
  if (at.locals == nullptr || at.locals == at.globals) {
    made.operation = of_global;
    made.name = name;
    made.first = value;
  } else {
    item(at.locals, name, made);
    made.operation = of_item;
    made.third = value;
  }
}

void set_callee(Instruction& made, PyObject* callee, PyObject* const* arguments, Py_ssize_t count) {
  made.operation = Operation::kCall;
  made.callee = callee;
  made.arguments = arguments;
  made.count = count;
}

/// `arguments` begin where a method's object or null lies.
void call_method(PyObject* method, PyObject* callee, PyObject* const* arguments, Py_ssize_t count,
                 Instruction& made) {
  if (method != nullptr) {
    set_callee(made, method, arguments, count + 1);
  } else {
    set_callee(made, callee, arguments + 1, count);
  }
}

/// `at.argument` arguments that end at `end`, and below them what is called.
[[maybe_unused]] void call(const Place& at, PyObject* const* end, Instruction& made) {
  PyObject* const* self = end - at.argument - 1;
#if PY_VERSION_HEX >= 0x030D0000
  call_method(self[0] != nullptr ? self[-1] : nullptr, self[-1], self, at.argument, made);
#else
  call_method(self[-1], self[0], self, at.argument, made);
#endif
}

void decode_spread_call(const Place& at, Instruction& made) {
  const int named = at.argument & 1;
  made.operation = Operation::kCall;
  made.spread = at.top[-1 - named];
  made.spread_named = named != 0 ? at.top[-1] : nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  made.callee = at.top[-3 - named];
#else
  made.callee = at.top[-2 - named];
#endif
}

void leave_with(const Place& at, Instruction& made) {
#if PY_VERSION_HEX >= 0x030B0000
  set_callee(made, at.top[-4], nullptr, 0);
#else
  set_callee(made, at.top[-7], nullptr, 0);
#endif
}

void one(const Place& at, Operation operation, Instruction& made) {
  made.operation = operation;
  made.first = at.top[-1];
}

/// The test of a bool reads nothing; some versions make one first.
void test(const Place& at, Instruction& made) {
  if (!PyBool_Check(at.top[-1])) one(at, Operation::kTest, made);
}

/// As some versions convert (`!r`) in an instruction before.
/// Of a view of the keys of a dict of C's that dict, since it asks that; anything else itself.
PyObject* dict_asked_by(PyObject* container) {
  if (!PyDictKeys_Check(container)) return container;
  PyObject* dict = nullptr;
  const auto visit = [](PyObject* held, void* into) {
    *static_cast<PyObject**>(into) = held;
    return 0;
  };
  Py_TYPE(container)->tp_traverse(container, visit, &dict);
  const bool is_of_c = dict != nullptr && (Py_TYPE(dict)->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0;
  return is_of_c ? dict : container;
}

void format(PyObject* value, Instruction& made) {
  made.operation = Operation::kFormat;
  made.first = value;
}

/// `first` below `second`.
void two(const Place& at, Operation operation, Instruction& made) {
  made.operation = operation;
  made.first = at.top[-2];
  made.second = at.top[-1];
  made.second_at = at.top - 1;
}

struct OperatorRow {
  int code;
  int in_place;
  Operator made;
};

#ifdef BINARY_OP  // the argument of it
constexpr std::array kOperators = {
    OperatorRow{NB_ADD, NB_INPLACE_ADD, Operator::kAdd},
    OperatorRow{NB_SUBTRACT, NB_INPLACE_SUBTRACT, Operator::kSubtract},
    OperatorRow{NB_MULTIPLY, NB_INPLACE_MULTIPLY, Operator::kMultiply},
    OperatorRow{NB_TRUE_DIVIDE, NB_INPLACE_TRUE_DIVIDE, Operator::kDivide},
    OperatorRow{NB_FLOOR_DIVIDE, NB_INPLACE_FLOOR_DIVIDE, Operator::kFloorDivide},
    OperatorRow{NB_REMAINDER, NB_INPLACE_REMAINDER, Operator::kModulo},
    OperatorRow{NB_POWER, NB_INPLACE_POWER, Operator::kPower},
    OperatorRow{NB_AND, NB_INPLACE_AND, Operator::kAnd},
    OperatorRow{NB_OR, NB_INPLACE_OR, Operator::kOr},
    OperatorRow{NB_XOR, NB_INPLACE_XOR, Operator::kXor},
};
#else  // the opcode
constexpr std::array kOperators = {
    OperatorRow{BINARY_ADD, INPLACE_ADD, Operator::kAdd},
    OperatorRow{BINARY_SUBTRACT, INPLACE_SUBTRACT, Operator::kSubtract},
    OperatorRow{BINARY_MULTIPLY, INPLACE_MULTIPLY, Operator::kMultiply},
    OperatorRow{BINARY_TRUE_DIVIDE, INPLACE_TRUE_DIVIDE, Operator::kDivide},
    OperatorRow{BINARY_FLOOR_DIVIDE, INPLACE_FLOOR_DIVIDE, Operator::kFloorDivide},
    OperatorRow{BINARY_MODULO, INPLACE_MODULO, Operator::kModulo},
    OperatorRow{BINARY_POWER, INPLACE_POWER, Operator::kPower},
    OperatorRow{BINARY_AND, INPLACE_AND, Operator::kAnd},
    OperatorRow{BINARY_OR, INPLACE_OR, Operator::kOr},
    OperatorRow{BINARY_XOR, INPLACE_XOR, Operator::kXor},
};
#endif

Operator operator_of(int code) {
  const auto row = std::ranges::find_if(kOperators, [code](const OperatorRow& each) {
    return each.code == code || each.in_place == code;
  });
  return row == kOperators.end() ? Operator::kOther : row->made;
}

static_assert(Py_LT == 0 && Py_GE == 5);
static_assert(static_cast<int>(Operator::kGreaterEqual) - static_cast<int>(Operator::kLess) == 5);

Operator comparison_of(int argument) {
#if PY_VERSION_HEX >= 0x030D0000
  argument >>= 5;
#elif PY_VERSION_HEX >= 0x030C0000
  argument >>= 4;
#endif
  return argument > Py_GE ? Operator::kOther
                          : static_cast<Operator>(static_cast<int>(Operator::kLess) + argument);
}

/// Keys that are made of texts alone are not reported.
void hash(PyObject* const* end, Py_ssize_t count, Py_ssize_t stride, Instruction& made) {
  PyObject* const* values = end - count;
  made.arguments = values;
  made.count = count;
  made.stride = stride;
  if (count > 0) made.operation = Operation::kHash;
}

/// What is on the top leaves the frame.
void give_out(const Place& at, Instruction& made) {
  if (at.top[-1] != Py_None) one(at, Operation::kGiveOut, made);
}

void attribute(const Place& at, Operation operation, int name, Instruction& made) {
  made.operation = operation;
  made.first = at.top[-1];
  made.name = name_at(at, name);
  if (operation == Operation::kStoreAttribute) made.second = at.top[-2];
}

/// `super` may be the name of something else, which is called and asked for the attribute then;
/// that is reported as the call alone.
#ifdef LOAD_SUPER_ATTR
void load_of_super(const Place& at, Instruction& made) {
  PyObject** top = at.top;
  if (top[-3] != reinterpret_cast<PyObject*>(&PySuper_Type)) {
    set_callee(made, top[-3], top - 2, (at.argument & 2) != 0 ? 2 : 0);
    return;
  }
  two(at, Operation::kLoadSuper, made);
  made.name = name_at(at, at.argument >> 2);
}
#endif

PyObject* no_names() {
  static PyObject* const none = PyTuple_New(0);
  return none;
}

void cell(const Place& at, Operation operation, Instruction& made) {
  made.first = cell_at(at);
  if (made.first == nullptr || !PyCell_Check(made.first)) return;
  made.operation = operation;
  made.name = name_of_cell(at);
  made.is_own = is_own_cell(at);
  if (operation == Operation::kStoreCell) made.second = at.top[-1];
}

/// A name that a class may have a value of its own for.
void load_cell_of_class(const Place& at, PyObject* locals, Instruction& made) {
  PyObject* name = name_of_cell(at);
  if (locals != nullptr && is_in(locals, name)) {
    item(locals, name, made);
  } else {
    cell(at, Operation::kLoadCell, made);
  }
}

}  // namespace

bool is_extended_argument(int opcode) { return opcode == EXTENDED_ARG; }

bool is_rest_of_call(int opcode) {
#ifdef PRECALL
  return opcode == CALL;
#else
  static_cast<void>(opcode);
  return false;
#endif
}

bool sets_keywords(int opcode) {
#ifdef KW_NAMES
  return opcode == KW_NAMES;
#else
  static_cast<void>(opcode);
  return false;
#endif
}

PyObject* keywords_of(const Place& at) { return PyTuple_GET_ITEM(at.code->co_consts, at.argument); }

bool takes_bounds(int opcode) {
#ifdef BINARY_SLICE
  return opcode == BINARY_SLICE || opcode == STORE_SLICE;
#else
  static_cast<void>(opcode);
  return false;
#endif
}

Pending pending_at(const Place& at, const Instruction& reported) {
#if PY_VERSION_HEX >= 0x030C0000
  bool is_paired = at.opcode == LOAD_ATTR || at.opcode == LOAD_SUPER_ATTR;
#if PY_VERSION_HEX >= 0x030D0000
  is_paired |= at.opcode == LOAD_GLOBAL;
#endif
  is_paired &= (at.argument & 1) != 0;
#else
  bool is_paired = at.opcode == LOAD_METHOD;
#if PY_VERSION_HEX < 0x030B0000
  is_paired |= at.opcode == MATCH_CLASS || at.opcode == MATCH_KEYS;
#endif
#endif
  return {at.frame,
          reported.operation,
          is_paired,
          at.top - at.bottom,
          gives_to_c(reported),
          generators_of(reported),
          methods_that_hand_on(reported)};
}

PyObject** result_of(const Pending& left, const Place& at) {
  switch (left.operation) {
    case Operation::kStoreGlobal:
    case Operation::kDeleteGlobal:
    case Operation::kStoreCell:
    case Operation::kDeleteCell:
    case Operation::kStoreAttribute:
    case Operation::kDeleteAttribute:
    case Operation::kStoreItem:
    case Operation::kDeleteItem:
    case Operation::kSpread:
    case Operation::kTest:
      return nullptr;
    case Operation::kNext:
      return at.top - at.bottom > left.height ? at.top - 1 : nullptr;
    default:
      break;
  }
  if (at.top <= at.bottom) return nullptr;
  if (!left.is_paired) return at.top - 1;
#if PY_VERSION_HEX >= 0x030D0000
  return at.top - 2;
#else
#if PY_VERSION_HEX < 0x030B0000
  // whether it matched lies above what did
  if (left.operation != Operation::kLoadAttribute) {
    return at.top[-1] == Py_True ? at.top - 2 : nullptr;
  }
#endif
  return at.top[-2] != nullptr ? at.top - 2 : at.top - 1;
#endif
}

Instruction decode(const Place& at) {
  Instruction made;
  made.frame = at.frame;
  made.code = at.code;
  made.offset = at.offset;
  made.globals = at.globals;
  made.builtins = at.builtins;
  PyObject** top = at.top;
  const int argument = at.argument;
  switch (at.opcode) {
    case LOAD_GLOBAL:
      made.operation = Operation::kLoadGlobal;
#if PY_VERSION_HEX >= 0x030B0000
      made.name = name_at(at, argument >> 1);
#else
      made.name = name_at(at, argument);
#endif
      break;
    case STORE_GLOBAL:
      made.operation = Operation::kStoreGlobal;
      made.name = name_at(at, argument);
      made.first = top[-1];
      break;
    case DELETE_GLOBAL:
      made.operation = Operation::kDeleteGlobal;
      made.name = name_at(at, argument);
      break;
    case LOAD_NAME:
      load_name(at, at.locals, name_at(at, argument), made);
      break;
#ifdef LOAD_FROM_DICT_OR_GLOBALS
    case LOAD_FROM_DICT_OR_GLOBALS:
      load_name(at, top[-1], name_at(at, argument), made);
      break;
#endif
    case STORE_NAME:
      change_name(at, Operation::kStoreGlobal, Operation::kStoreItem, made);
      break;
    case DELETE_NAME:
      change_name(at, Operation::kDeleteGlobal, Operation::kDeleteItem, made);
      break;
    case LOAD_DEREF:
      cell(at, Operation::kLoadCell, made);
      break;
#ifdef LOAD_CLASSDEREF
    case LOAD_CLASSDEREF:
      load_cell_of_class(at, at.locals, made);
      break;
#else
    case LOAD_FROM_DICT_OR_DEREF:
      load_cell_of_class(at, top[-1], made);
      break;
#endif
    case STORE_DEREF:
      cell(at, Operation::kStoreCell, made);
      break;
    case DELETE_DEREF:
      cell(at, Operation::kDeleteCell, made);
      break;
#if PY_VERSION_HEX >= 0x030D0000
    case LOAD_FAST:
      if ((kind_at(at) & (kCell | kFree)) != 0) cell(at, Operation::kCloseOver, made);
      break;
#else
    case LOAD_CLOSURE:
      cell(at, Operation::kCloseOver, made);
      break;
#endif
#if PY_VERSION_HEX >= 0x030C0000
    case LOAD_ATTR:
      attribute(at, Operation::kLoadAttribute, argument >> 1, made);
      break;
    case LOAD_SUPER_ATTR:
      load_of_super(at, made);
      break;
#else
    case LOAD_ATTR:
    case LOAD_METHOD:
#endif
    case IMPORT_FROM:
      attribute(at, Operation::kLoadAttribute, argument, made);
      break;
    case STORE_ATTR:
      attribute(at, Operation::kStoreAttribute, argument, made);
      break;
    case DELETE_ATTR:
      attribute(at, Operation::kDeleteAttribute, argument, made);
      break;
    case RAISE_VARARGS:
      if (argument == 0) made.operation = Operation::kReraise;
      if (argument != 0) one(at, Operation::kRaise, made);
      if (argument == 2) made.first = at.top[-2];  // its cause is on top
      break;
    case IMPORT_NAME:
      made.operation = Operation::kImport;
      made.name = name_at(at, argument);
      break;
    case BINARY_SUBSCR:
      two(at, Operation::kLoadItem, made);
      break;
    case DELETE_SUBSCR:
      two(at, Operation::kDeleteItem, made);
      break;
    case STORE_SUBSCR:
      two(at, Operation::kStoreItem, made);
      made.third = top[-3];
      break;
#ifdef BINARY_SLICE
    case BINARY_SLICE:
      item(top[-3], at.slice, made);
      break;
    case STORE_SLICE:
      item(top[-3], at.slice, made);
      made.operation = Operation::kStoreItem;
      made.third = top[-4];
      break;
#endif
#ifdef BINARY_OP
    case BINARY_OP:
      made.is_in_place = at.argument >= NB_INPLACE_ADD;
#else
    case INPLACE_ADD:
    case INPLACE_POWER:
    case INPLACE_MULTIPLY:
    case INPLACE_MATRIX_MULTIPLY:
    case INPLACE_MODULO:
    case INPLACE_SUBTRACT:
    case INPLACE_FLOOR_DIVIDE:
    case INPLACE_TRUE_DIVIDE:
    case INPLACE_LSHIFT:
    case INPLACE_RSHIFT:
    case INPLACE_AND:
    case INPLACE_XOR:
    case INPLACE_OR:
      made.is_in_place = true;
      [[fallthrough]];
    case BINARY_POWER:
    case BINARY_MULTIPLY:
    case BINARY_MATRIX_MULTIPLY:
    case BINARY_MODULO:
    case BINARY_ADD:
    case BINARY_SUBTRACT:
    case BINARY_FLOOR_DIVIDE:
    case BINARY_TRUE_DIVIDE:
    case BINARY_LSHIFT:
    case BINARY_RSHIFT:
    case BINARY_AND:
    case BINARY_XOR:
    case BINARY_OR:
#endif
      two(at, Operation::kBinary, made);
#ifdef BINARY_OP
      made.made = operator_of(argument);
#else
      made.made = operator_of(at.opcode);
#endif
      break;
    case COMPARE_OP:
      two(at, Operation::kCompare, made);
      made.made = comparison_of(argument);
      break;
#ifdef YIELD_FROM
    case YIELD_FROM:  // an iterator of C's gives its items by itself
      made.operation = Operation::kGiveOut;
      made.first = top[-2];
      break;
#endif
    case YIELD_VALUE:
    case RETURN_VALUE:
      give_out(at, made);
      break;
    case IS_OP:
      if (top[-1] != Py_None && top[-2] != Py_None) two(at, Operation::kIdentity, made);
      break;
    case CONTAINS_OP:
      made.operation = Operation::kContains;
      made.first = dict_asked_by(top[-1]);
      made.second = top[-2];
      break;
    case UNARY_NEGATIVE:
    case UNARY_INVERT:
#ifdef UNARY_POSITIVE
    case UNARY_POSITIVE:
#endif
      one(at, Operation::kUnary, made);
      if (at.opcode == UNARY_NEGATIVE) made.made = Operator::kNegate;
#ifdef UNARY_POSITIVE
      if (at.opcode == UNARY_POSITIVE) made.made = Operator::kPlus;
#endif
      break;
    case UNARY_NOT:
#ifdef TO_BOOL
    case TO_BOOL:
#endif
#ifdef POP_JUMP_IF_TRUE
    case POP_JUMP_IF_TRUE:
    case POP_JUMP_IF_FALSE:
#endif
#ifdef POP_JUMP_FORWARD_IF_TRUE
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_FALSE:
#endif
#ifdef JUMP_IF_TRUE_OR_POP
    case JUMP_IF_TRUE_OR_POP:
    case JUMP_IF_FALSE_OR_POP:
#endif
      test(at, made);
      break;
#ifdef FORMAT_VALUE
    case FORMAT_VALUE:
      format(top[(argument & 4) != 0 ? -2 : -1], made);
      break;
#else
    case CONVERT_VALUE:
    case FORMAT_SIMPLE:
      format(top[-1], made);
      break;
    case FORMAT_WITH_SPEC:
      format(top[-2], made);
      break;
#endif
    case GET_ITER:
    case GET_YIELD_FROM_ITER:
    case GET_AITER:
    case GET_AWAITABLE:
      one(at, Operation::kIterate, made);
      break;
    case FOR_ITER:
    case GET_ANEXT:
      one(at, Operation::kNext, made);
      break;
#ifdef SEND
    case SEND:
      made.operation = Operation::kNext;
      made.first = top[-2];
      break;
#endif
    case SET_UPDATE:
      one(at, Operation::kSpread, made);
      made.hashes = true;
      break;
    case BUILD_SET:
      hash(top, argument, 1, made);
      break;
    case BUILD_MAP:
      hash(top, Py_ssize_t{2} * argument, 2, made);
      break;
    case SET_ADD:
      hash(top, 1, 1, made);
      break;
    case MAP_ADD:
      hash(top, 2, 2, made);
      break;
#ifdef CALL_INTRINSIC_1
    case CALL_INTRINSIC_1:
      if (argument == INTRINSIC_UNARY_POSITIVE) {
        one(at, Operation::kUnary, made);
        made.made = Operator::kPlus;
      }
      if (argument == INTRINSIC_IMPORT_STAR) one(at, Operation::kSpread, made);
      break;
#else
    case IMPORT_STAR:
#endif
    case UNPACK_SEQUENCE:
    case UNPACK_EX:
    case LIST_EXTEND:
      one(at, Operation::kSpread, made);
      break;
    case DICT_UPDATE:
    case DICT_MERGE:
      one(at, Operation::kSpread, made);
      made.is_mapping = true;
      break;
#ifdef COPY_DICT_WITHOUT_KEYS
    case COPY_DICT_WITHOUT_KEYS:
      made.operation = Operation::kSpread;
      made.first = top[-2];
      break;
#endif
    case GET_LEN:
      one(at, Operation::kLength, made);
      break;
    case MATCH_CLASS:
      made.operation = Operation::kMatchClass;
      made.first = top[-3];
      made.second = top[-2];
      made.third = top[-1];
      made.count = argument;
      break;
    case MATCH_SEQUENCE:
    case MATCH_MAPPING:
      one(at, Operation::kMatchClass, made);
      made.third = no_names();
      break;
    case MATCH_KEYS:
      two(at, Operation::kMatchKeys, made);
      break;
    case BEFORE_ASYNC_WITH:
#ifdef BEFORE_WITH
    case BEFORE_WITH:
#else
    case SETUP_WITH:
#endif
      one(at, Operation::kEnter, made);
      break;
    case WITH_EXCEPT_START:
      leave_with(at, made);
      break;
#ifdef PRECALL
    case PRECALL:
#elif defined(CALL)
    case CALL:
#else
    case CALL_METHOD:
#endif
      call(at, top, made);
      made.keywords = at.keywords;
      break;
#ifdef CALL_KW
    case CALL_KW:
      call(at, top - 1, made);
      made.keywords = top[-1];
      break;
#endif
#ifdef CALL_FUNCTION
    case CALL_FUNCTION:
      set_callee(made, top[-argument - 1], top - argument, argument);
      break;
    case CALL_FUNCTION_KW:
      set_callee(made, top[-argument - 2], top - argument - 1, argument);
      made.keywords = top[-1];
      break;
#endif
    case CALL_FUNCTION_EX:
      decode_spread_call(at, made);
      break;
    default:
      break;
  }
  return made;
}

}  // namespace steptape::python::watch

#endif
