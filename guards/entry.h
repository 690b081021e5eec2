#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/model.h"
#include "trace/value.h"

namespace steptape::guards {

/// What one fetch from memory brings, in bytes.
inline constexpr std::size_t kCacheLine = 64;

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

/// Where the address of each buffer belongs in the memory list of a run, or -1: the inverse of a
/// plan's list of bound buffers.
std::vector<std::int64_t> positions_of(const trace::Recording& recording,
                                       const std::vector<trace::BufferId>& bound);

}  // namespace steptape::guards
