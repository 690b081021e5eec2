#include "replayer/runtime/cpu/lanes/dependences.h"

#include <algorithm>
#include <unordered_map>

namespace steptape::replayer::cpu {
namespace {

/// What was done to one storage, apart so that readers of the same bytes do not look at each other.
struct History {
  Uses reads;
  Uses writes;
};

}  // namespace

std::vector<std::vector<std::size_t>> dependences_of(std::span<const std::vector<Use>> uses) {
  std::unordered_map<Use::Storage, History> histories;
  std::vector<std::vector<std::size_t>> after(uses.size());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const auto come_behind = [&](const Use& earlier) { after[i].push_back(earlier.by); };
    for (const Use& use : uses[i]) {
      History& history = histories[use.storage];
      history.writes.for_each_conflict(use, come_behind);
      if (use.is_write) history.reads.for_each_conflict(use, come_behind);
    }
    for (Use use : uses[i]) {
      use.by = i;
      History& history = histories[use.storage];
      if (!use.is_write) {
        history.reads.add(use);
        continue;
      }
      // who comes after this write comes after them, too
      history.reads.forget_covered(use);
      history.writes.forget_covered(use);
      history.writes.add(use);
    }
    std::ranges::sort(after[i]);
    after[i].erase(std::unique(after[i].begin(), after[i].end()), after[i].end());
  }
  return after;
}

}  // namespace steptape::replayer::cpu
