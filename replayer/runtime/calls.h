#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/executor.h"
#include "replayer/runtime/memory.h"

namespace steptape::replayer {

/// What a run does, in its order.
struct Calls {
  std::vector<Call> calls;
  std::vector<at::Generator> generators;  ///< the default one, then those that ops name
  /// Adopted buffers that the user gets, let go of at the end.
  std::vector<trace::BufferId> trailing_releases;
};

/// Where an op stands in a run.
struct Place {
  trace::Index op = 0;
  bool is_once = false;  ///< as its instruction says: done in the first run alone
  /// As places_of says; -1 of what is done once.
  std::int64_t at = 0;
};

/// The ops of `program` that are calls, in the order of a run: first what is done once, then the
/// others by their `places` (see places_of).
std::vector<Place> order_of(const Program& program, const std::vector<std::int64_t>& places);

/// The same as calls over the tensors of `memory`. Throws Error (data_loss) when a value does not
/// fit its operator.
Calls calls_of(const Program& program, const Memory& memory, const GeneratorOf& generator,
               const std::vector<std::int64_t>& places);

}  // namespace steptape::replayer
