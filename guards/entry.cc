#include "guards/entry.h"

namespace steptape::guards {

std::vector<std::int64_t> positions_of(const trace::Recording& recording,
                                       const std::vector<trace::BufferId>& bound) {
  std::vector<std::int64_t> position(recording.buffers.size(), -1);
  for (std::size_t i = 0; i < bound.size(); ++i) position[bound[i]] = static_cast<std::int64_t>(i);
  return position;
}

}  // namespace steptape::guards
