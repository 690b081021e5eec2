#pragma once

#include "recorder/recorder.h"

namespace steptape::session {

/// Writes into the recording what its hints say about host numbers: which formulas they follow,
/// what the program decided by them, and which host reads may therefore give any value. A formula
/// that does not give the recorded number becomes a refusal (scalar_varies).
void bind_followed_numbers(recorder::Recorded& recorded);

}  // namespace steptape::session
