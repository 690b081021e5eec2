#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "replayer/runtime/cpu/lanes/schedule.h"
#include "replayer/runtime/cpu/team.h"
#include "replayer/runtime/kernel.h"

namespace steptape::replayer::cpu {

/// Kernels done on several threads by a schedule.
class Lanes {
 public:
  /// `kernels` by the schedule's jobs; they must outlive it, and run anywhere.
  Lanes(Schedule schedule, std::vector<Kernel*> kernels);

  /// Returns when all are done. Where LibTorch has no thread for a lane, or it comes late, the
  /// calling thread takes it. When a kernel throws the others are left undone, and the first
  /// exception goes on.
  void run();

 private:
  /// Apart, so that lanes do not write to each other's cache lines.
  struct alignas(64) Lane {
    std::atomic<bool> is_taken = false;
    std::atomic<std::size_t> done = 0;  ///< jobs; written by who took it
  };

  /// What a thread works on.
  struct Worker {
    c10::SmallVector<std::size_t, 8> lanes;
    bool takes_more = false;  ///< the calling thread's
  };

  bool take(std::size_t lane);
  /// Those that nobody has taken: whom it waits for may wait for one of them. False: none.
  bool take_all(Worker& worker);
  void work(Worker& worker);
  /// The lane of the worker whose next job comes first; none: all is done.
  std::optional<std::size_t> next_lane(const Worker& worker) const;
  /// False where the worker took other lanes meanwhile, or a kernel threw.
  bool await(const Wait& wait, Worker& worker);
  bool await_all(const std::vector<Wait>& waits, Worker& worker);
  void fail();

  Schedule schedule_;
  std::vector<Kernel*> kernels_;
  std::unique_ptr<Lane[]> lanes_;
  std::vector<Wait> end_;  ///< of all lanes
  std::atomic<bool> is_failing_ = false;
  std::atomic<bool> has_failed_ = false;  ///< and failure_ says how
  std::exception_ptr failure_;
  Team team_;
};

}  // namespace steptape::replayer::cpu
