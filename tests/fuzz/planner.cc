#include <memory>
#include <vector>

#include "replayer/planner/analysis/refusals.h"
#include "replayer/runtime/backends.h"
#include "replayer/runtime/cpu/executor.h"
#include "steptape/error.h"
#include "tests/fuzz/target.h"
#include "tests/trace/text/text_parse.h"
#include "trace/text/text.h"

/// A recording of any text that is valid is refused or becomes a plan, without an op being run.
/// What the plan keeps in its own memory lies within it, and nothing that is alive shares a byte.
namespace steptape::fuzz {
namespace {

using replayer::BufferPlan;
using replayer::Placement;
using replayer::Program;

bool share_memory(const Program& program, std::size_t a, std::size_t b) {
  const BufferPlan& x = program.buffers[a];
  const BufferPlan& y = program.buffers[b];
  const bool in_time = x.defined <= y.last_use && y.defined <= x.last_use;
  return in_time && x.arena_offset < y.arena_offset + program.recording->buffers[b].bytes &&
         y.arena_offset < x.arena_offset + program.recording->buffers[a].bytes;
}

void require_sound(const Program& program) {
  require(program.instructions.size() == program.recording->ops.size(), "each op is treated");
  std::vector<std::size_t> placed;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const BufferPlan& buffer = program.buffers[i];
    if (buffer.placement != Placement::kArena) continue;
    require(buffer.arena_offset % 64 == 0, "memory is aligned");
    require(buffer.arena_offset + program.recording->buffers[i].bytes <= program.arena_bytes,
            "buffers lie within the arena");
    for (const std::size_t other : placed) {
      require(!share_memory(program, i, other), "what is alive shares no memory");
    }
    placed.push_back(i);
  }
}

void look_at(std::string_view text) try {
  auto recording = std::make_shared<trace::Recording>(trace::parse_recording(text));
  trace::validate(*recording);
  if (!replayer::refusals_of(*recording, replayer::why_no_backend).empty()) return;
  require_sound(replayer::cpu::plan(recording));
  require_sound(replayer::cpu::plan(std::move(recording), {.share_memory = false}));
} catch (const Error& error) {
  require(error.code() != ErrorCode::kInternal && error.code() != ErrorCode::kIo,
          std::string("no error but one of the recording: ") + error.what());
}

}  // namespace
}  // namespace steptape::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  steptape::fuzz::look_at({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
