#include "session/mismatches.h"

#include <utility>

#include "session/variant.h"

namespace steptape::session {

void Mismatches::begin(std::uint64_t call) {
  call_ = call;
  all_.clear();
}

void Mismatches::add(const Variant& variant, Verdict verdict) {
  std::erase_if(all_, [&](const VariantVerdict& other) { return other.variant == variant.number; });
  const std::uint64_t last_held = variant.last_held == 0 ? 0 : call_ - variant.last_held;
  all_.push_back({variant.number, std::move(verdict), last_held});
}

}  // namespace steptape::session
