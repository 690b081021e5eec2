#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "replayer/planner/analysis/writes.h"
#include "replayer/planner/program.h"

namespace steptape::replayer {

/// A stretch of memory that a run may write.
struct Region {
  void* address = nullptr;
  std::size_t bytes = 0;
  c10::Device device = c10::Device(c10::kCPU);
};

/// Copies of memory and generator states, to be written back: in place, never swapped, since users
/// hold pointers.
class Undo {
 public:
  /// Copies aside what is there now, on its own device. Throws std::bad_alloc or
  /// c10::OutOfMemoryError when memory is short.
  void take(std::span<const Region> regions, std::span<const at::Generator> generators);
  /// Writes everything back.
  void restore();
  /// Lets go of memory of devices; that of the host serves the next copies.
  void forget();

 private:
  std::vector<Region> regions_;
  std::vector<std::byte> bytes_;     ///< of those on the host, one after the other
  std::vector<at::DataPtr> copies_;  ///< of the others, in their order
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

/// The memory that each run is given, and what of it a run that ends early must put back.
struct Bound {
  std::vector<trace::BufferId> buffers;
  /// Positions in `buffers`: what a run writes, and of that what it may have written when it ends
  /// early.
  std::vector<std::size_t> written;
  std::vector<std::size_t> undone;
  std::vector<trace::BufferId> refilled;  ///< constants that ops write: new in each run
  bool draws_random = false;
  bool restores_generators = false;
  /// The first op that writes bound memory of which no copy is taken: no op after it should throw.
  std::int64_t first_lasting_write = std::numeric_limits<std::int64_t>::max();
  /// After it nothing but a want of memory can end a run.
  std::int64_t last_deciding_op = -1;
};

/// `writes` is of the program's recording.
Bound bound_of(const Program& program, const Writes& writes);

}  // namespace steptape::replayer
