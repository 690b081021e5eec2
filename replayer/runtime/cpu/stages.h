#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "replayer/planner/program.h"
#include "replayer/runtime/call.h"
#include "replayer/runtime/cpu/kernels/fused_group.h"
#include "replayer/runtime/memory.h"

namespace steptape::replayer::cpu {

/// Calls that a run does in one go: one, or several that follow each other, by a kernel for them
/// all.
struct Stage {
  std::size_t first = 0;  ///< of the calls
  std::size_t count = 1;
  std::unique_ptr<FusedGroup> group = {};  ///< null: the call has its own way
};

/// Gives each call its kernel, where there is one for it. `refilled` are constants that ops write.
void prepare_kernels(const Program& program, const Memory& memory,
                     const std::vector<trace::BufferId>& refilled, std::vector<Call>& calls);

/// The same for calls whose kernels ask neither how memory is aligned nor in which order they run:
/// of a plan for a device, what is done on the host.
void prepare_elementwise_kernels(const Program& program, const Memory& memory,
                                 const std::vector<trace::BufferId>& refilled,
                                 std::vector<Call>& calls);

/// Whether calls may be done in one go.
enum class Fusion { kNo, kYes };

/// The calls in stages. No stage reaches over the call `border`, nor holds both calls that are done
/// once and others. The calls must stay where they are.
std::vector<Stage> stages_of(const Program& program, const Memory& memory,
                             const std::vector<Call>& calls, std::size_t border, Fusion fusion);

}  // namespace steptape::replayer::cpu
