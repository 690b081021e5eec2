#include "replayer/runtime/undo.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>

#include "live/contents.h"
#include "live/generator_state.h"

namespace steptape::replayer {

void Undo::take(std::span<const Region> regions, std::span<const at::Generator> generators) {
  regions_.assign(regions.begin(), regions.end());
  std::size_t total = 0;
  for (const Region& region : regions_) {
    if (region.device.is_cpu()) total += region.bytes;
  }
  bytes_.resize(total);
  copies_.clear();
  std::byte* to = bytes_.data();
  for (const Region& region : regions_) {
    if (!region.device.is_cpu()) {
      copies_.push_back(c10::GetAllocator(region.device.type())->allocate(region.bytes));
      live::copy_bytes(copies_.back().get(), region.device, region.address, region.device,
                       region.bytes);
      continue;
    }
    if (region.bytes != 0) std::memcpy(to, region.address, region.bytes);
    to += region.bytes;
  }
  generators_.assign(generators.begin(), generators.end());
  states_.clear();
  for (const at::Generator& generator : generators_) states_.push_back(live::state_of(generator));
}

void Undo::restore() {
  const std::byte* from = bytes_.data();
  auto copy = copies_.begin();
  for (const Region& region : regions_) {
    if (!region.device.is_cpu()) {
      live::copy_bytes(region.address, region.device, (copy++)->get(), region.device, region.bytes);
      continue;
    }
    if (region.bytes != 0) std::memcpy(region.address, from, region.bytes);
    from += region.bytes;
  }
  for (std::size_t i = 0; i < generators_.size(); ++i) live::set_state(generators_[i], states_[i]);
}

void Undo::forget() {
  regions_.clear();
  copies_.clear();
}

namespace {

/// In each run.
bool is_made(const Program& program, const BufferPlan& plan) {
  return plan.defined >= 0 && !plan.stays &&
         program.instructions[static_cast<std::size_t>(plan.defined)].treatment !=
             Treatment::kDropped;
}

/// The last op whose results are allocated while it runs, which may fail for want of memory; -1:
/// none.
std::int64_t last_allocating_op(const Program& program) {
  std::int64_t last = -1;
  for (const BufferPlan& plan : program.buffers) {
    if (is_new_each_time(plan.placement) && is_made(program, plan))
      last = std::max(last, plan.defined);
  }
  return last;
}

}  // namespace

Bound bound_of(const Program& program, const Writes& writes) {
  Bound bound;
  bound.last_deciding_op = writes.last_throwing_op;
  const std::int64_t last_throwing_op =
      std::max(writes.last_throwing_op, last_allocating_op(program));
  std::vector<std::size_t> position(program.buffers.size(), 0);
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].placement != Placement::kBound) continue;
    position[id] = bound.buffers.size();
    bound.buffers.push_back(id);
  }
  for (const Writes::Write& write : writes.writes) {
    if (program.buffers[write.buffer].placement == Placement::kConstant) {
      bound.refilled.push_back(write.buffer);
      continue;
    }
    bound.written.push_back(position[write.buffer]);
    if (write.first <= last_throwing_op) {
      bound.undone.push_back(position[write.buffer]);
    } else {
      bound.first_lasting_write = std::min(bound.first_lasting_write, write.first);
    }
  }
  bound.draws_random = writes.draws_random;
  bound.restores_generators = writes.draws_random && last_throwing_op >= 0;
  return bound;
}

}  // namespace steptape::replayer
