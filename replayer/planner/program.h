#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Where the bytes of a buffer are while a plan runs.
enum class Placement : std::uint8_t {
  kBound,  ///< the caller's: parameters, state, inputs, gradients at entry; given anew to each run
  kConstant,  ///< the plan's own copy of bytes that the trace holds
  kAdopted,   ///< allocated by the op that makes them, kept until their last use
  kMade,      ///< the same, but allocated by the run for the op, which fills them
  kArena,     ///< planned memory, shared by buffers that do not live at the same time
  kCaptured,  ///< in a graph's own pool: allocated by the op that makes them, once, under capture
  kStaging,   ///< the plan's own: what an op outside graphs makes for one inside is copied there
};

/// Whether each run brings new memory.
constexpr bool is_new_each_time(Placement placement) {
  return placement == Placement::kAdopted || placement == Placement::kMade;
}

/// What a run does for an op.
enum class Treatment : std::uint8_t {
  kCall,      ///< calls the recorded operator; new results are adopted
  kOut,       ///< calls its out variant; results land in the arena, or in memory made for them
  kInto,      ///< the same by a kernel: the operator has no out variant
  kGeometry,  ///< nothing: its results are known tensors on known buffers
  kDropped,   ///< nothing: nobody needs its results
};

struct Instruction {
  Treatment treatment = Treatment::kCall;
  c10::OperatorHandle callee;  ///< the recorded operator, or its out variant
  bool is_once = false;        ///< its results are the same in each run: the first one makes them
};

struct BufferPlan {
  Placement placement = Placement::kAdopted;
  std::uint64_t arena_offset = 0;
  /// First and last op that touch it, as positions in Recording::ops. A bound or constant buffer,
  /// and planned memory that stays, is defined at -1; what the user sees afterwards lives until
  /// ops.size(), as does what stays.
  std::int64_t defined = -1;
  std::int64_t last_use = -1;
  bool stays = false;  ///< filled in the first run alone, and kept
};

/// A recording on its way to a plan: valid after lowering and after each pass, so that any pass can
/// be left out.
struct Program {
  std::shared_ptr<const trace::Recording> recording;
  std::vector<Instruction> instructions;  ///< one for each op, in the recorded order
  std::vector<BufferPlan> buffers;        ///< one for each buffer
  bool uses_kernels = false;              ///< calls that have a kernel are done by it
  bool fuses = false;  ///< element-wise kernels that follow each other run piece by piece
  std::uint64_t arena_bytes = 0;
  std::uint64_t temporary_bytes = 0;  ///< of all arena buffers without sharing
  std::uint64_t max_live_bytes = 0;   ///< of arena buffers at the op where most are alive
};

/// Calls `visit(buffer)` for each result of the op in memory that was not there before it.
template <typename Visit>
void for_each_made(const Program& program, trace::Index op, Visit&& visit) {
  for_each_buffer(*program.recording, program.recording->ops[op].outputs, [&](trace::BufferId id) {
    if (program.buffers[id].defined == static_cast<std::int64_t>(op)) visit(id);
  });
}

/// The program that calls every op as it was recorded and plans no memory. `recording` must have no
/// refusals (see analysis). Ops that only change geometry in place are never calls: a call would
/// change the plan's own tensors.
Program lower(std::shared_ptr<const trace::Recording> recording);

}  // namespace steptape::replayer
