#pragma once

#include "tests/fuzz/choices.h"
#include "trace/model.h"

namespace steptape::fuzz {

/// A valid recording to start from, one of a few.
trace::Recording draw_recording(Choices& choices);

/// Makes one change that `choices` draw; where the recording would not be valid, none.
void edit(trace::Recording& recording, Choices& choices);

}  // namespace steptape::fuzz
