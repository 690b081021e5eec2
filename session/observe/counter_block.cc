#include "session/observe/counter_block.h"

#include <mutex>
#include <set>

namespace steptape::session {

/// Never destroyed: sessions may end after the program's own static objects.
class CounterBlock::All {
 public:
  std::mutex mutex;
  std::set<const CounterBlock*> blocks;
  Sums ended;
};

CounterBlock::All& CounterBlock::all() {
  static auto* all = new All;
  return *all;
}

CounterBlock::CounterBlock() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  all().blocks.insert(this);
}

CounterBlock::~CounterBlock() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  add_to(all().ended);
  all().blocks.erase(this);
}

void CounterBlock::add_to(Sums& sums) const {
  const auto add_all = [](const auto& cells, auto& to) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      to[i] += cells[i].load(std::memory_order_relaxed);
  };
  add_all(counts_, sums.counts);
  add_all(fallbacks_, sums.fallbacks);
  add_all(refusals_, sums.refusals);
}

CounterBlock::Sums CounterBlock::sums() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  Sums sums = all().ended;
  for (const CounterBlock* block : all().blocks) block->add_to(sums);
  return sums;
}

}  // namespace steptape::session
