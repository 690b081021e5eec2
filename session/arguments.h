#pragma once

#include <vector>

#include "live/argument.h"
#include "steptape/pack.h"

namespace steptape::session {

/// Arguments, declared values and returned numbers in trace's words.
live::Argument argument_of(pack::Leaf&& leaf);
std::vector<live::Argument> arguments_of(std::vector<pack::Leaf> leaves);
trace::Value value_of(const pack::Number& number);
pack::Number returned_of(const trace::Value& value);
/// A number of the kind that `recorded` has.
pack::Number number_of(double value, const trace::Value& recorded);

}  // namespace steptape::session
