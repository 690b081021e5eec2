#include "python/engine/watch/layout.h"
#if STEPTAPE_KNOWS_BYTECODE && PY_VERSION_HEX >= 0x030C0000

#include <opcode.h>

#include "python/engine/watch/opcodes.h"

namespace steptape::python::watch {
namespace {

constexpr std::size_t kUnit = 2;  // bytes

bool jumps_forward(int opcode) {
  return opcode == FOR_ITER || opcode == SEND || opcode == JUMP_FORWARD ||
         opcode == POP_JUMP_IF_TRUE || opcode == POP_JUMP_IF_FALSE || opcode == POP_JUMP_IF_NONE ||
         opcode == POP_JUMP_IF_NOT_NONE;
}

bool jumps_backward(int opcode) {
  return opcode == JUMP_BACKWARD || opcode == JUMP_BACKWARD_NO_INTERRUPT;
}

/// Whether the instruction after it is reached by jumps alone.
bool ends_a_way(int opcode) {
  return opcode == RETURN_VALUE || opcode == RETURN_CONST || opcode == RAISE_VARARGS ||
         opcode == RERAISE || opcode == JUMP_FORWARD || jumps_backward(opcode);
}

/// Numbers of the table of exceptions: six bits a byte, the high ones first; the seventh bit says
/// that more follow.
std::size_t number(const unsigned char*& at) {
  std::size_t value = *at & 63U;
  while ((*at++ & 64U) != 0) value = value << 6U | (*at & 63U);
  return value;
}

}  // namespace

Layout::Layout(PyCodeObject* code) : code_(code) {
  PyObject* bytes = PyCode_GetCode(code);  // as it was compiled, without instrumentation
  if (bytes == nullptr) {
    PyErr_Clear();
    is_sound_ = false;
    return;
  }
  const auto units = static_cast<std::size_t>(PyBytes_GET_SIZE(bytes)) / kUnit;
  steps_.resize(units);
  std::vector<std::size_t> next(units);
  read_instructions(reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes)), next);
  Py_DECREF(bytes);
  std::vector<Way> ways{{0, 0}};
  read_handlers(ways);
  follow(std::move(ways), next);
  mark_interest(next);
}

const Layout::Step& Layout::at(int offset) const {
  static const Step none;
  const std::size_t unit = static_cast<std::size_t>(offset) / kUnit;
  return unit < steps_.size() ? steps_[unit] : none;
}

void Layout::read_instructions(const unsigned char* bytes, std::vector<std::size_t>& next) {
  PyObject* keywords = nullptr;
  for (std::size_t unit = 0; unit < steps_.size();) {
    Step& step = steps_[unit];
    std::size_t after = unit;
    do {
      step.opcode = bytes[after * kUnit];
      step.argument = step.argument << 8 | bytes[after * kUnit + 1];
      ++after;
    } while (step.opcode == EXTENDED_ARG && after < steps_.size());
    while (after < steps_.size() && bytes[after * kUnit] == CACHE) ++after;
    next[unit] = after;
    unit = after;
    step.keywords = keywords;
    keywords = nullptr;
#ifdef KW_NAMES
    if (step.opcode == KW_NAMES) keywords = PyTuple_GET_ITEM(code_->co_consts, step.argument);
#endif
  }
}

void Layout::read_handlers(std::vector<Way>& ways) const {
  PyObject* table = code_->co_exceptiontable;
  const auto* at = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(table));
  const unsigned char* end = at + PyBytes_GET_SIZE(table);
  while (at < end) {
    number(at);  // where it begins
    number(at);  // its length
    const std::size_t target = number(at);
    const std::size_t depth_and_place = number(at);
    // the place that raised, where it is wanted, and the exception are on the stack
    ways.push_back(
        {target, static_cast<int>((depth_and_place >> 1U) + (depth_and_place & 1U)) + 1});
  }
}

int Layout::effect(const Step& step, bool jumps) const {
  if (step.opcode == RETURN_GENERATOR) return 1;  // goes on with what is sent
  return PyCompile_OpcodeStackEffectWithJump(step.opcode, step.argument, jumps ? 1 : 0);
}

void Layout::follow(std::vector<Way> ways, const std::vector<std::size_t>& next) {
  while (!ways.empty()) {
    const Way way = ways.back();
    ways.pop_back();
    if (way.unit >= steps_.size() || way.depth < 0 || way.depth > code_->co_stacksize) {
      is_sound_ = false;
      continue;
    }
    Step& step = steps_[way.unit];
    if (step.depth >= 0) {
      is_sound_ &= step.depth == way.depth;
      continue;
    }
    step.depth = way.depth;
    const std::size_t after = next[way.unit];
    const auto argument = static_cast<std::size_t>(step.argument);
    const int jumped = way.depth + effect(step, true);
    if (jumps_forward(step.opcode)) ways.push_back({after + argument, jumped});
    if (jumps_backward(step.opcode)) ways.push_back({after - argument, jumped});
    if (!ends_a_way(step.opcode)) ways.push_back({after, way.depth + effect(step, false)});
  }
}

void Layout::mark_interest(const std::vector<std::size_t>& next) {
  bool comes_after = false;
  for (std::size_t unit = 0; unit < steps_.size(); unit = next[unit]) {
    Step& step = steps_[unit];
    bool may_be_reported = is_reported(step.opcode);
#if PY_VERSION_HEX >= 0x030D0000
    constexpr unsigned kLocalAlone = 0x20;
    if (step.opcode == LOAD_FAST) {
      const char* kinds = PyBytes_AS_STRING(code_->co_localspluskinds);
      may_be_reported = (static_cast<unsigned char>(kinds[step.argument]) & ~kLocalAlone) != 0;
    }
#endif
    step.is_of_interest |= may_be_reported || comes_after;
    comes_after = may_be_reported;
    if (may_be_reported && jumps_forward(step.opcode)) {
      // what it tests is settled there
      const std::size_t target = next[unit] + static_cast<std::size_t>(step.argument);
      if (target < steps_.size()) steps_[target].is_of_interest = true;
    }
    if (step.opcode != FOR_ITER) continue;
    // an iterator that ends goes on after what would take it off the stack
    std::size_t end = next[unit] + static_cast<std::size_t>(step.argument);
    for (int i = 0; i < 3 && end < steps_.size(); ++i, end = next[end]) {
      steps_[end].is_of_interest = true;
    }
  }
}

}  // namespace steptape::python::watch

#endif
