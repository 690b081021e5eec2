#include "session/verify/audit_schedule.h"

#include <algorithm>

namespace steptape::session {

bool AuditSchedule::draw() {
  if (rate_ <= 0) return false;
  probability_ = std::max(probability_ / 2, std::min(rate_, 1.0));
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability_;
}

}  // namespace steptape::session
