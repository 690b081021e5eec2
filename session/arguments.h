#pragma once

#include <vector>

#include "live/values.h"
#include "recorder/recorder.h"
#include "steptape/pack.h"

namespace steptape::session {

/// Arguments, declared values and returned numbers in trace's words.
live::Argument argument_of(pack::Leaf&& leaf);
std::vector<live::Argument> arguments_of(std::vector<pack::Leaf> leaves);
trace::Value value_of(const pack::Number& number);
pack::Number returned_of(const trace::Value& value);
/// A number of the kind that `recorded` has.
pack::Number number_of(double value, const trace::Value& recorded);

/// Writes into the recording what its hints say about host numbers: which formulas they follow,
/// what the program decided by them, and which host reads may therefore give any value. A formula
/// that does not give the recorded number becomes a refusal (scalar_varies).
void bind_followed_numbers(recorder::Recorded& recorded);

}  // namespace steptape::session
