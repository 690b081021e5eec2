#include "session/room.h"

#include <algorithm>
#include <utility>

namespace steptape::session {
namespace {

std::size_t count_unreturned(const std::vector<Room::Held>& held) {
  return static_cast<std::size_t>(
      std::ranges::count_if(held, [](const Room::Held& each) { return !each.is_returned; }));
}

}  // namespace

Room::Answer Room::ask(const std::vector<Held>& held, std::uint64_t now) {
  const bool has_unreturned = count_unreturned(held) >= kMostUnreturned;
  std::size_t count = held.size();
  std::uint64_t bytes = 0;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < held.size(); ++i) {
    bytes += held[i].bytes;
    order.push_back(i);
  }
  // where none of many was of use, it is one of those that leaves
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return std::pair(has_unreturned && held[i].is_returned, held[i].last_use);
  });
  Answer answer;
  const auto is_full = [&] {
    return count >= most_ || (count >= kMostOfAnySize && bytes >= kMostBytes) ||
           (has_unreturned && answer.leaving.empty());
  };
  for (const std::size_t i : order) {
    if (!is_full()) break;
    answer.leaving.push_back(i);
    --count;
    bytes -= held[i].bytes;
  }
  answer.is_free = !is_full() && (answer.leaving.empty() || pay(held[answer.leaving.back()], now));
  if (!answer.is_free) unpaid_ = 0;
  return answer;
}

bool Room::pay(const Held& leaving, std::uint64_t now) {
  if (credit_ >= kWorth) {
    credit_ -= kWorth;
    return true;
  }
  if (leaving.last_use + kLong >= now || unpaid_ >= kMostUnpaid) return false;
  ++unpaid_;
  return true;
}

}  // namespace steptape::session
