#pragma once

#include "trace/model.h"
#include "trace/place.h"

namespace steptape::trace {

/// How deep lists may lie in lists. Recursion over a value stays far from the end of
/// the stack, and a value fits the 100 levels to which protobuf reads messages in messages.
inline constexpr int kMaxValueDepth = 32;

/// `validate(const Recording&)` with the words that lead to the recording.
/// Leaves, formulas and the places where they enter.
void validate_numbers(const Recording& recording, const Place& place);
void validate_recording(const Recording& recording, const Place& place);

}  // namespace steptape::trace
