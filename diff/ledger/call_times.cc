#include "diff/ledger/call_times.h"

#include <algorithm>

#include "diff/ledger/time_band.h"

namespace steptape::diff {
namespace {

TimeBand middle_half(const CallTimes& times) {
  return {times.lower_quartile, times.median, times.upper_quartile};
}

}  // namespace

CallTimes times_of(std::vector<std::uint32_t> microseconds) {
  if (microseconds.empty()) return {};
  std::ranges::sort(microseconds);
  const auto at = [&microseconds](std::size_t percent) {
    return microseconds[percentile(microseconds.size(), percent)];
  };
  return {microseconds.size(), at(25), at(50), at(75), at(95)};
}

bool are_comparable(const CallTimes& a, const CallTimes& b) noexcept {
  return std::min(a.calls, b.calls) >= kFewestCalls;
}

bool differ(const CallTimes& a, const CallTimes& b) noexcept {
  constexpr std::uint64_t kOneMicrosecond = 1;
  return are_comparable(a, b) && lie_apart(middle_half(a), middle_half(b), kOneMicrosecond);
}

}  // namespace steptape::diff
