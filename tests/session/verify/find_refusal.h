#pragma once

#include <steptape/steptape.h>

/// What tests of verifications share.
namespace steptape::tests {

/// The first refusal of this code, or null.
inline const Refusal* find(const Stats& stats, RefusalCode code) {
  for (const CountedRefusal& counted : stats.refusals) {
    if (counted.refusal.code == code) return &counted.refusal;
  }
  return nullptr;
}

}  // namespace steptape::tests
