#include "guards/ambient_guard.h"

#include <algorithm>

#include "guards/mismatch.h"

namespace steptape::guards {

Verdict AmbientGuard::check() const {
  const live::Ambient now = live::Ambient::current();
  if (now == expected_) return {};
  return compare_facts(expected_.facts(), now.facts(), "ambient.");
}

Verdict compare_facts(const std::vector<trace::Fact>& expected,
                      const std::vector<trace::Fact>& found, const std::string& prefix) {
  for (const trace::Fact& fact : expected) {
    const auto same = std::find_if(found.begin(), found.end(), [&](const trace::Fact& other) {
      return other.name == fact.name;
    });
    if (same == found.end())
      return failed(GuardKind::kAmbient, prefix + fact.name, fact.value, "unknown here");
    if (same->value != fact.value)
      return failed(GuardKind::kAmbient, prefix + fact.name, fact.value, same->value);
  }
  return {};
}

}  // namespace steptape::guards
