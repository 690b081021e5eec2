#include "replayer/run/undo.h"

#include <cstring>

#include "live/generator_state.h"

namespace steptape::replayer {

void Undo::take(std::span<const Region> regions, std::span<const at::Generator> generators) {
  regions_.assign(regions.begin(), regions.end());
  std::size_t total = 0;
  for (const Region& region : regions_) total += region.bytes;
  bytes_.resize(total);
  std::byte* to = bytes_.data();
  for (const Region& region : regions_) {
    if (region.bytes != 0) std::memcpy(to, region.address, region.bytes);
    to += region.bytes;
  }
  generators_.assign(generators.begin(), generators.end());
  states_.clear();
  for (const at::Generator& generator : generators_) states_.push_back(live::state_of(generator));
}

void Undo::restore() {
  const std::byte* from = bytes_.data();
  for (const Region& region : regions_) {
    if (region.bytes != 0) std::memcpy(region.address, from, region.bytes);
    from += region.bytes;
  }
  for (std::size_t i = 0; i < generators_.size(); ++i) live::set_state(generators_[i], states_[i]);
}

}  // namespace steptape::replayer
