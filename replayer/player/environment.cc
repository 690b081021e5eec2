#include "replayer/player/environment.h"

#include <algorithm>

#include "live/ambient.h"

namespace steptape::replayer {

std::vector<std::string> environment_differences(const std::vector<trace::Fact>& recorded) {
  std::vector<std::string> differences;
  const std::vector<trace::Fact> here = live::environment();
  for (const trace::Fact& fact : recorded) {
    const auto found = std::ranges::find(here, fact.name, &trace::Fact::name);
    const std::string value = found == here.end() ? "unknown" : found->value;
    if (value == fact.value) continue;
    differences.push_back(fact.name + ": recorded " + fact.value + ", here " + value);
  }
  return differences;
}

}  // namespace steptape::replayer
