#pragma once

#include "replayer/planner/program.h"

namespace steptape::replayer {

/// Which passes run. All on by default; tests switch each off and compare.
struct PassOptions {
  bool drop_dead = true;
  bool elide_views = true;
  bool out_variants = true;
  bool hoist_constants = true;
  bool share_memory = true;
  bool kernels = true;
  bool fusion = true;
};

/// Whether the backend has a kernel that fills results which are there, for an operator without an
/// out variant.
using FillsResults = bool (*)(const c10::FunctionSchema& schema);

/// Ops of which nothing comes that the user sees are not run: no result is read by an op that is,
/// and they neither write memory that outlives the step, nor draw from a generator, nor tell the
/// host a value, nor may throw.
void drop_dead(Program& program);

/// Ops that leave the same in each run are done in the first one alone: those over constants that
/// nobody writes, and those that look at geometry (`zeros_like`). Their results keep their memory.
void hoist_constants(Program& program);

/// Ops whose schema (or the table of effects) says that they return views, and that write nothing,
/// become tensors known beforehand. Their memory is that of what they look at.
void elide_views(Program& program);

/// Ops with an out variant that computes in place of the result write it to planned memory. Left as
/// they are: results that the user gets (a later replay must not overwrite them), out variants
/// tagged `generated` (they allocate and copy), results that share memory with others.
void use_out_variants(Program& program, FillsResults fills_results);

/// Gives each arena buffer its offset: largest first, at the lowest place that no buffer alive at
/// the same time takes (greedy by size; Pisarchyk and Lee, "Efficient Memory Management for Deep
/// Neural Net Inference", 2020). Offsets are multiples of 64, the remainder that LibTorch's
/// allocator gives. Throws Error (unsupported) where they cannot all be addressed.
enum class Sharing {
  kNone,        ///< each buffer has bytes of its own
  kByLifetime,  ///< buffers that do not live at the same time share them
};
void plan_memory(Program& program, Sharing sharing);

/// lower, then the passes that `options` names.
Program plan(std::shared_ptr<const trace::Recording> recording, FillsResults fills_results,
             const PassOptions& options);

}  // namespace steptape::replayer
