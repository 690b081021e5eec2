#include "replayer/runtime/cuda/plan/ring.h"

#include <bit>

#include "steptape/error.h"

namespace steptape::replayer::cuda {

Ring::Ring(RingMemory& memory, std::size_t slots) : memory_(memory), slots_(slots) {
  if (slots == 0) throw Error(ErrorCode::kInternal, "a ring without slots");
}

Ring::~Ring() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    try {
      if (is_taken_ && i == next_) slot.fence->record();
      if (slot.is_under_way || (is_taken_ && i == next_)) slot.fence->wait();
    } catch (...) {
      continue;  // A device that fails may still write there: better lost than freed.
    }
    if (slot.memory != nullptr) memory_.free(slot.memory);
  }
}

std::byte* Ring::take(std::size_t bytes) {
  if (is_taken_) done();
  Slot& slot = slots_[next_];
  if (slot.fence == nullptr) slot.fence = memory_.make_fence();
  if (slot.is_under_way) {
    if (!slot.fence->is_done()) slot.fence->wait();
    slot.is_under_way = false;
  }
  if (bytes > slot.bytes) {
    // Sizes that creep up would else allocate each time, which takes a device longer than a step.
    const std::size_t larger = std::bit_ceil(bytes);
    std::byte* memory = memory_.allocate(larger);
    if (slot.memory != nullptr) memory_.free(slot.memory);
    slot.memory = memory;
    slot.bytes = larger;
  }
  is_taken_ = true;
  return slot.memory;
}

void Ring::done() {
  if (!is_taken_) return;
  Slot& slot = slots_[next_];
  slot.fence->record();
  slot.is_under_way = true;
  is_taken_ = false;
  next_ = (next_ + 1) % slots_.size();
}

}  // namespace steptape::replayer::cuda
