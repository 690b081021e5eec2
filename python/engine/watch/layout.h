#pragma once

#include "python/engine/watch/instruction.h"
#if STEPTAPE_KNOWS_BYTECODE && PY_VERSION_HEX >= 0x030C0000

#include <cstddef>
#include <cstdint>
#include <vector>

namespace steptape::python::watch {

/// The instructions of one code object, and how many operands lie on the stack before each:
/// CPython 3.12 and later do not save that where an instruction begins. It follows from the
/// bytecode, as the compiler has computed it.
class Layout {
 public:
  struct Step {
    PyObject* keywords = nullptr;  ///< the names that the instruction before a call has set
    int argument = 0;
    int depth = -1;  ///< -1: is never reached, or no instruction begins here
    std::uint8_t opcode = 0;
    bool is_of_interest = false;  ///< may be reported, or comes after one that may
  };

  /// `code` outlives it.
  explicit Layout(PyCodeObject* code);

  /// The step at an offset in bytes. One with a large argument stands where its prefixes begin.
  const Step& at(int offset) const;
  /// Whether all ways to each instruction agree on the depth, and it lies in the frame.
  bool is_sound() const { return is_sound_; }

 private:
  struct Way {
    std::size_t unit;
    int depth;
  };

  /// `next` gets the unit after the instruction that begins at each.
  void read_instructions(const unsigned char* bytes, std::vector<std::size_t>& next);
  void read_handlers(std::vector<Way>& ways) const;
  void follow(std::vector<Way> ways, const std::vector<std::size_t>& next);
  void mark_interest(const std::vector<std::size_t>& next);
  int effect(const Step& step, bool jumps) const;

  PyCodeObject* code_;
  std::vector<Step> steps_;  ///< by unit of code
  bool is_sound_ = true;
};

}  // namespace steptape::python::watch

#endif
