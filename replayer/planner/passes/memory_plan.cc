#include <algorithm>
#include <numeric>

#include "replayer/planner/passes/passes.h"
#include "steptape/error.h"

namespace steptape::replayer {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::uint64_t rounded(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Placed {
  std::int64_t defined, last_use;
  std::uint64_t begin, end;
};

/// The lowest offset at which `bytes` fit beside everything alive from `plan.defined` to
/// `plan.last_use`.
std::uint64_t lowest_gap(const std::vector<Placed>& placed, const BufferPlan& plan,
                         std::uint64_t bytes) {
  std::uint64_t offset = 0;
  // `placed` is kept sorted by begin
  for (const Placed& other : placed) {
    if (other.last_use < plan.defined || other.defined > plan.last_use) continue;
    if (offset + bytes <= other.begin) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

std::uint64_t most_alive(const Program& program, const std::vector<trace::BufferId>& buffers) {
  // from -1, for what is there from the first run on
  std::vector<std::int64_t> change(program.instructions.size() + 3, 0);
  for (const trace::BufferId id : buffers) {
    const auto bytes = static_cast<std::int64_t>(rounded(program.recording->buffers[id].bytes));
    const BufferPlan& plan = program.buffers[id];
    change[static_cast<std::size_t>(plan.defined + 1)] += bytes;
    change[static_cast<std::size_t>(plan.last_use + 2)] -= bytes;
  }
  std::int64_t alive = 0, most = 0;
  for (const std::int64_t bytes : change) most = std::max(most, alive += bytes);
  return static_cast<std::uint64_t>(most);
}

/// A trace may tell of buffers of any size; without this their sum would begin anew at 0, and
/// buffers that are alive together would share memory.
void require_addressable(const Program& program, const std::vector<trace::BufferId>& buffers) {
  constexpr auto kMost = static_cast<std::uint64_t>(INT64_MAX) / kAlignment * kAlignment;
  std::uint64_t left = kMost;
  for (const trace::BufferId id : buffers) {
    const std::uint64_t bytes = rounded(program.recording->buffers[id].bytes);
    if (bytes > left) {
      throw Error(ErrorCode::kUnsupported,
                  "the temporaries of the step take more bytes than can be addressed");
    }
    left -= bytes;
  }
}

/// Arena buffers, largest first.
std::vector<trace::BufferId> arena_buffers(const Program& program) {
  std::vector<trace::BufferId> order;
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].placement == Placement::kArena) order.push_back(id);
  }
  require_addressable(program, order);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](trace::BufferId id) {
    return rounded(program.recording->buffers[id].bytes);
  });
  return order;
}

/// Gives each of them its offset; the bytes of the arena.
std::uint64_t place(Program& program, const std::vector<trace::BufferId>& order) {
  std::vector<Placed> placed;
  placed.reserve(order.size());
  std::uint64_t arena_bytes = 0;
  for (const trace::BufferId id : order) {
    BufferPlan& plan = program.buffers[id];
    const std::uint64_t bytes = rounded(program.recording->buffers[id].bytes);
    plan.arena_offset = lowest_gap(placed, plan, bytes);
    const Placed entry{plan.defined, plan.last_use, plan.arena_offset, plan.arena_offset + bytes};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        entry);
    arena_bytes = std::max(arena_bytes, entry.end);
  }
  return arena_bytes;
}

}  // namespace

void plan_memory(Program& program, Sharing sharing) {
  const std::vector<trace::BufferId> order = arena_buffers(program);
  program.max_live_bytes = most_alive(program, order);
  program.temporary_bytes = 0;
  for (const trace::BufferId id : order) {
    if (sharing == Sharing::kNone) program.buffers[id].arena_offset = program.temporary_bytes;
    program.temporary_bytes += rounded(program.recording->buffers[id].bytes);
  }
  program.arena_bytes = sharing == Sharing::kNone ? program.temporary_bytes : place(program, order);
}

}  // namespace steptape::replayer
