#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// What came of doing a recorded call again.
struct Repetition {
  /// What each op left, by its position; none for those that a plan makes no call of, and for those
  /// after one that threw.
  std::vector<std::optional<trace::Digest>> digests;
  std::string failure;  ///< why it ended early; empty: it did not

  /// How many ops can be compared with what `recording` wrote down of them.
  std::size_t compared(const trace::Recording& recording) const;
  /// The first of them that left something else; kNone: all are equal.
  trace::Index first_difference(const trace::Recording& recording) const;
};

/// Why the call cannot be done again from `recording` alone, a sentence each; empty: it can. Asked
/// for are the bytes of all that it found, digests of its ops, and that no op is refused.
std::vector<std::string> lacks_of(const trace::Recording& recording);

/// Does the call again: from the bytes that it found, with the numbers that its ops were given.
/// Draws from the process's default generator, which is set to the state that the call found.
/// `recording` must lack nothing.
Repetition repeat(const trace::Recording& recording);

}  // namespace steptape::replayer
