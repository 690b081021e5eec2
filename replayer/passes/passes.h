#pragma once

#include "replayer/program.h"

namespace steptape::replayer {

/// Which passes run. All on by default; tests switch each off and compare.
struct PassOptions {
  bool elide_views = true;
  bool out_variants = true;
  bool share_memory = true;
  bool kernels = true;
  bool chains = true;
};

/// Ops whose schema (or the table of effects) says that they return views, and that write nothing,
/// become tensors known beforehand. Their memory is that of what they look at.
void elide_views(Program& program);

/// Ops with an out variant that computes in place of the result write it to planned memory. Left as
/// they are: results that the user gets (a later replay must not overwrite them), out variants
/// tagged `generated` (they allocate and copy), results that share memory with others.
void use_out_variants(Program& program);

/// Gives each arena buffer its offset: largest first, at the lowest place that no buffer alive at
/// the same time takes (greedy by size; Pisarchyk and Lee, "Efficient Memory Management for Deep
/// Neural Net Inference", 2020). Offsets are multiples of 64, the remainder that LibTorch's
/// allocator gives. Without sharing, each buffer gets bytes of its own. Throws Error (unsupported)
/// where they cannot all be addressed.
enum class Sharing { kNone, kByLifetime };
void plan_memory(Program& program, Sharing sharing);

/// lower, then the passes that `options` names.
Program plan(std::shared_ptr<const trace::Recording> recording, const PassOptions& options);

}  // namespace steptape::replayer
