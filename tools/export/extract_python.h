#pragma once

#include <cstddef>
#include <string>
#include <variant>

#include "tools/cli/trace_choice.h"

namespace steptape::tools {

/// Why no program can be made of an op, in words.
struct NoProgram {
  std::string reason;
};

/// Bytes of a captured constant up to which a program holds them.
inline constexpr std::size_t kMostBytes = 4096;

/// A Python program that runs op `position` of a recording alone: it makes inputs of the recorded
/// geometry, those that share memory in one buffer with the recorded remainder of its address, with
/// seeded values; constants of at most kMostBytes hold the recorded bytes. It calls the operator
/// with the recorded scalars under the recorded switches of torch, and prints geometry and digest
/// of what it gives and writes, and the recorded geometry where that differs. `position` must be
/// that of an op.
std::variant<std::string, NoProgram> extract_python(const ChosenRecording& chosen,
                                                    trace::Index position);

}  // namespace steptape::tools
