#include "guards/remainders.h"

#include <algorithm>

namespace steptape::guards {

bool Remainders::are_proved() const {
  if (newest_ < proved_.size() && proved_[newest_] == now_) return true;
  const auto found = std::ranges::find(proved_, now_);
  if (found == proved_.end()) return false;
  newest_ = static_cast<std::size_t>(found - proved_.begin());
  return true;
}

void Remainders::settle() {
  if (!are_proved()) proved_.push_back(now_);
}

}  // namespace steptape::guards
