#pragma once

#include <span>
#include <string>

#include "live/argument.h"

namespace steptape::session {

/// How a call is entered, as far as it can be told before the call runs at next to no cost: the
/// geometry of its tensors, its other arguments (numbers of any value alike), and grad mode. Two
/// calls of one way may still need two plans (trace::same_entry looks at more).
std::string way_of_entry(std::span<const live::Argument> arguments);

}  // namespace steptape::session
