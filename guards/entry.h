#pragma once

#include <string>
#include <vector>

#include "trace/value.h"

namespace steptape::guards {

/// What checking the guards of a plan finds out for its run. Reused from step to step, so that
/// nothing is allocated.
struct Entry {
  std::vector<void*> memory;   ///< an address for each bound buffer
  std::vector<double> leaves;  ///< a value for each of Recording::leaves
  /// A number that moves has a value at which this plan was not proved.
  bool has_unseen_number = false;
  /// Inputs lie at addresses, modulo 64, at which this plan was not compared with the eager step.
  bool has_new_remainders = false;
  /// A tracked tensor other than a gradient whose memory is elsewhere than in the newest verified
  /// or replayed run; empty when none moved.
  std::string moved;
};

/// What the program declares beside the arguments of a step, as it stands when the step begins.
struct Declared {
  std::vector<trace::Value> host_values;  ///< of Session::host, in the order of declaration
  std::vector<trace::Value> facts;        ///< of Session::guard
};

}  // namespace steptape::guards
