#include <algorithm>
#include <numeric>

#include "replayer/passes/passes.h"
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
  std::vector<std::int64_t> change(program.instructions.size() + 2, 0);
  for (const trace::BufferId id : buffers) {
    const auto bytes = static_cast<std::int64_t>(rounded(program.recording->buffers[id].bytes));
    change[program.buffers[id].defined] += bytes;
    change[program.buffers[id].last_use + 1] -= bytes;
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

}  // namespace

void plan_memory(Program& program, Sharing sharing) {
  std::vector<trace::BufferId> order;
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].placement == Placement::kArena) order.push_back(id);
  }
  require_addressable(program, order);
  program.max_live_bytes = most_alive(program, order);
  program.arena_bytes = program.temporary_bytes = 0;
  const auto bytes_of = [&](trace::BufferId id) {
    return rounded(program.recording->buffers[id].bytes);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return bytes_of(a) > bytes_of(b); });
  std::vector<Placed> placed;
  placed.reserve(order.size());
  for (const trace::BufferId id : order) {
    BufferPlan& plan = program.buffers[id];
    const std::uint64_t bytes = bytes_of(id);
    plan.arena_offset =
        sharing == Sharing::kNone ? program.temporary_bytes : lowest_gap(placed, plan, bytes);
    const Placed entry{plan.defined, plan.last_use, plan.arena_offset, plan.arena_offset + bytes};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        entry);
    program.arena_bytes = std::max(program.arena_bytes, entry.end);
    program.temporary_bytes += bytes;
  }
}

}  // namespace steptape::replayer
