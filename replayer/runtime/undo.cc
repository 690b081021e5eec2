#include "replayer/runtime/undo.h"

#include <c10/core/Allocator.h>

#include <cstring>

#include "live/device_bytes.h"
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

}  // namespace steptape::replayer
