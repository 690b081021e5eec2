#include "diff/ledger/time_band.h"

namespace steptape::diff {
namespace {

bool is_outside(std::uint64_t median, const TimeBand& others, std::uint64_t resolution) {
  return median + resolution < others.lower || median > others.upper + resolution;
}

}  // namespace

bool lie_apart(const TimeBand& a, const TimeBand& b, std::uint64_t resolution) noexcept {
  return is_outside(a.median, b, resolution) && is_outside(b.median, a, resolution);
}

}  // namespace steptape::diff
