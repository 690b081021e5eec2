#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "steptape/guard_kind.h"
#include "steptape/refusal.h"

namespace steptape::session {

/// What one session adds to the process's counters. One thread at a time adds, as it calls the
/// session's steps, at the cost of a load and a store; any thread may sum up all blocks. What a
/// block has counted stays when it goes.
class CounterBlock {
 public:
  enum class Count : std::uint8_t {
    kRecorded,
    kTrials,
    kAudits,
    kReplayed,
    kEager,
    kPlans,
    kDivergences,
    kRebinds,
    kSize
  };

  CounterBlock();
  ~CounterBlock();
  CounterBlock(const CounterBlock&) = delete;
  CounterBlock& operator=(const CounterBlock&) = delete;

  void add(Count count) noexcept { add(counts_[static_cast<std::size_t>(count)]); }
  void add_fallback(GuardKind kind) noexcept { add(fallbacks_[static_cast<std::uint8_t>(kind)]); }
  void add_refusal(RefusalCode code) noexcept { add(refusals_[static_cast<std::uint8_t>(code)]); }

  /// The sums over all blocks there were.
  struct Sums {
    std::array<std::uint64_t, static_cast<std::size_t>(Count::kSize)> counts{};
    std::array<std::uint64_t, 256> fallbacks{};  ///< by GuardKind
    std::array<std::uint64_t, 256> refusals{};   ///< by RefusalCode
  };
  static Sums sums();

 private:
  using Cell = std::atomic<std::uint64_t>;
  static void add(Cell& cell) noexcept {
    cell.store(cell.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void add_to(Sums& sums) const;
  class All;
  static All& all();

  std::array<Cell, static_cast<std::size_t>(Count::kSize)> counts_{};
  std::array<Cell, 256> fallbacks_{};
  std::array<Cell, 256> refusals_{};
};

}  // namespace steptape::session
