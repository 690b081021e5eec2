#include "replayer/planner/passes/passes.h"

namespace steptape::replayer {

Program plan(std::shared_ptr<const trace::Recording> recording, FillsResults fills_results,
             const PassOptions& options) {
  Program program = lower(std::move(recording));
  program.uses_kernels = options.kernels;
  program.fuses = options.kernels && options.fusion;
  if (options.drop_dead) drop_dead(program);
  if (options.elide_views) elide_views(program);
  if (options.out_variants) use_out_variants(program, fills_results);
  if (options.hoist_constants) hoist_constants(program);
  plan_memory(program, options.share_memory ? Sharing::kByLifetime : Sharing::kNone);
  return program;
}

}  // namespace steptape::replayer
