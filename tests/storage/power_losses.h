#pragma once

#include <cerrno>
#include <random>

#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"

namespace steptape::storage {

/// How many calls `run` makes on a copy of the disk.
template <typename Run>
std::size_t calls_of(MemoryFileSystem disk, Run&& run) {
  const std::size_t before = disk.calls();
  run(disk);
  return disk.calls() - before;
}

/// Lets the power fail at each call that `run` makes on a copy of `before`, and draws each time
/// what is left on the disk; how many draws are not good. `run` throws nothing, and what it gave
/// goes to `is_good(disk, given, draw)`. Adds the draws to `cases`.
template <typename Run, typename IsGood>
std::size_t count_losses(const MemoryFileSystem& before, std::size_t& cases, Run&& run,
                         IsGood&& is_good) {
  const std::size_t draws = amount("STEPTAPE_DRAWS", 100);
  const std::size_t calls = calls_of(before, run);
  std::mt19937_64 random(1);
  std::size_t lost = 0;
  for (std::size_t call = 0; call <= calls; ++call) {
    MemoryFileSystem stopped(before);
    stopped.fail(stopped.calls() + call, EIO, Lasting::kForever);
    const auto given = run(stopped);
    for (std::size_t draw = 0; draw < draws; ++draw, ++cases) {
      MemoryFileSystem disk(stopped);
      disk.lose_power(random);
      if (!is_good(disk, given, draw)) ++lost;
    }
  }
  return lost;
}

}  // namespace steptape::storage
