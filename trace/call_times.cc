#include "trace/call_times.h"

#include <algorithm>

namespace steptape::trace {
namespace {

bool is_outside(std::uint32_t median, const CallTimes& others) {
  return std::uint64_t{median} + 1 < others.lower_quartile ||
         median > std::uint64_t{others.upper_quartile} + 1;
}

}  // namespace

CallTimes times_of(std::vector<std::uint32_t> microseconds) {
  if (microseconds.empty()) return {};
  std::ranges::sort(microseconds);
  const auto at = [&microseconds](std::size_t percent) {
    return microseconds[(microseconds.size() - 1) * percent / 100];
  };
  return {microseconds.size(), at(25), at(50), at(75), at(95)};
}

bool are_comparable(const CallTimes& a, const CallTimes& b) noexcept {
  return std::min(a.calls, b.calls) >= kFewestCalls;
}

bool differ(const CallTimes& a, const CallTimes& b) noexcept {
  return are_comparable(a, b) && is_outside(a.median, b) && is_outside(b.median, a);
}

}  // namespace steptape::trace
