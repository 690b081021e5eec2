// Every opcode of CPython 3.10 to 3.13, as the module `opcode` names them. One that is in neither
// list is of a version that nobody has looked at.
#include <array>
#include <string>
#include <string_view>

#include "python/engine/watch/opcodes.h"

namespace steptape::python::watch {

#if STEPTAPE_KNOWS_BYTECODE
namespace {

/// Those that `decode` has words for. CALL_INTRINSIC_1 is `+x` and `import *`; LOAD_FAST loads a
/// cell where there is no LOAD_CLOSURE.
constexpr std::string_view kReported =
    "BEFORE_ASYNC_WITH BEFORE_WITH BINARY_ADD BINARY_AND BINARY_FLOOR_DIVIDE BINARY_LSHIFT "
    "BINARY_MATRIX_MULTIPLY BINARY_MODULO BINARY_MULTIPLY BINARY_OP BINARY_OR BINARY_POWER "
    "BINARY_RSHIFT BINARY_SLICE BINARY_SUBSCR BINARY_SUBTRACT BINARY_TRUE_DIVIDE BINARY_XOR "
    "BUILD_MAP BUILD_SET CALL CALL_FUNCTION CALL_FUNCTION_EX CALL_FUNCTION_KW CALL_INTRINSIC_1 "
    "CALL_KW CALL_METHOD COMPARE_OP CONTAINS_OP CONVERT_VALUE COPY_DICT_WITHOUT_KEYS DELETE_ATTR "
    "DELETE_DEREF DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR DICT_MERGE DICT_UPDATE FORMAT_SIMPLE "
    "FORMAT_VALUE FORMAT_WITH_SPEC FOR_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN "
    "GET_YIELD_FROM_ITER IMPORT_FROM IMPORT_NAME IMPORT_STAR INPLACE_ADD INPLACE_AND "
    "INPLACE_FLOOR_DIVIDE INPLACE_LSHIFT INPLACE_MATRIX_MULTIPLY INPLACE_MODULO INPLACE_MULTIPLY "
    "INPLACE_OR INPLACE_POWER INPLACE_RSHIFT INPLACE_SUBTRACT INPLACE_TRUE_DIVIDE INPLACE_XOR "
    "IS_OP JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP LIST_EXTEND LOAD_ATTR LOAD_CLASSDEREF "
    "LOAD_CLOSURE LOAD_DEREF LOAD_FAST LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS "
    "LOAD_GLOBAL LOAD_METHOD LOAD_NAME LOAD_SUPER_ATTR MAP_ADD MATCH_CLASS MATCH_KEYS "
    "MATCH_MAPPING MATCH_SEQUENCE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE "
    "POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE "
    "PRECALL RAISE_VARARGS RETURN_VALUE SEND SETUP_WITH SET_ADD SET_UPDATE STORE_ATTR STORE_DEREF "
    "STORE_GLOBAL STORE_NAME STORE_SLICE STORE_SUBSCR TO_BOOL UNARY_INVERT UNARY_NEGATIVE "
    "UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE WITH_EXCEPT_START YIELD_FROM YIELD_VALUE";

/// Those that touch local variables, the stack, and objects that they make or that the frame has
/// made for itself.
constexpr std::string_view kLeftAlone =
    // the stack and local variables
    "COPY COPY_FREE_VARS DELETE_FAST DUP_TOP DUP_TOP_TWO END_FOR END_SEND LOAD_CONST "
    "LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_LOCALS MAKE_CELL POP_TOP "
    "PUSH_NULL ROT_FOUR ROT_N ROT_THREE ROT_TWO STORE_FAST STORE_FAST_LOAD_FAST "
    "STORE_FAST_STORE_FAST SWAP "
    // objects that they make: exception groups, lists of displays
    "BUILD_CONST_KEY_MAP BUILD_LIST BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL_INTRINSIC_2 "
    "LIST_APPEND LIST_TO_TUPLE MAKE_FUNCTION SETUP_ANNOTATIONS SET_FUNCTION_ATTRIBUTE "
    // where execution goes on
    "EXTENDED_ARG JUMP_ABSOLUTE JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD NOP "
    "POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_NONE "
    "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE RESUME RETURN_CONST "
    // generators: what they give items of was reported where it was asked for its iterator
    "ASYNC_GEN_WRAP GEN_START RETURN_GENERATOR "
    // exceptions, which are fresh
    "CHECK_EG_MATCH CHECK_EXC_MATCH CLEANUP_THROW END_ASYNC_FOR JUMP_IF_NOT_EXC_MATCH POP_BLOCK "
    "POP_EXCEPT PREP_RERAISE_STAR PUSH_EXC_INFO RERAISE SETUP_ASYNC_WITH SETUP_FINALLY "
    // the interpreter's own
    "LOAD_ASSERTION_ERROR LOAD_BUILD_CLASS PRINT_EXPR "
    // part of the instruction before a call
    "KW_NAMES "
    // never in the bytecode that a compiler makes
    "CACHE ENTER_EXECUTOR EXIT_INIT_CHECK INTERPRETER_EXIT RESERVED";

constexpr int kOpcodes = 256;

struct Table {
  std::array<bool, kOpcodes> is_reported{};
  std::string unknown;
};

/// Opcodes with larger numbers are the compiler's alone, and instrumented ones stand for others.
void add(Table& table, std::string_view name, long opcode) {
  if (opcode < 0 || opcode >= kOpcodes || name.starts_with("INSTRUMENTED_")) return;
  if (is_one_of(name, kReported)) {
    table.is_reported[static_cast<std::size_t>(opcode)] = true;
  } else if (!is_one_of(name, kLeftAlone)) {
    table.unknown = name;
  }
}

Table read_table() {
  Table table;
  PyObject* module = PyImport_ImportModule("opcode");
  PyObject* map = module == nullptr ? nullptr : PyObject_GetAttrString(module, "opmap");
  if (map == nullptr || !PyDict_Check(map)) table.unknown = "(all)";
  PyObject* name = nullptr;
  PyObject* opcode = nullptr;
  Py_ssize_t position = 0;
  while (table.unknown.empty() && PyDict_Next(map, &position, &name, &opcode) != 0) {
    add(table, PyUnicode_AsUTF8(name), PyLong_AsLong(opcode));
  }
  Py_XDECREF(map);
  Py_XDECREF(module);
  PyErr_Clear();
  return table;
}

const Table& table() {
  static const Table all = read_table();
  return all;
}

}  // namespace

bool is_reported(int opcode) { return table().is_reported[static_cast<std::size_t>(opcode)]; }

const char* unknown_opcode() { return table().unknown.empty() ? nullptr : table().unknown.c_str(); }

bool knows_opcodes(const char** why) {
  if (unknown_opcode() == nullptr) return true;
  static const std::string reason =
      std::string("this Python has an opcode that is not known: ") + unknown_opcode();
  *why = reason.c_str();
  return false;
}

#else

// No adapter for this version.
const char* unknown_opcode() { return "(all)"; }

bool start(Listener&, const char** why) {
#ifdef Py_GIL_DISABLED
  *why = "a CPython without the interpreter's lock is not watched";
#else
  *why = "the bytecode of CPython is known for versions 3.10 to 3.13";
#endif
  return false;
}

bool stop() { return true; }

#endif

}  // namespace steptape::python::watch
