#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace steptape::replayer::cpu {

/// A piece of work that one thread does.
struct Job {
  double ns = 0;
  std::vector<std::size_t> after;  ///< jobs before it in the order given, which must be done first
};

/// That a lane has done so many of its jobs.
struct Wait {
  std::size_t lane = 0;
  std::size_t done = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct ScheduledJob {
  std::size_t job = 0;
  std::size_t order = 0;    ///< among all of them: after those it waits for, however indirectly
  std::vector<Wait> waits;  ///< at most one a lane, none for its own
};

/// Who does what, in which order. Lanes never wait for each other in a circle, whoever works on
/// them and however long jobs take, as long as a thread with several lanes does their jobs by
/// `order`.
struct Schedule {
  std::vector<std::vector<ScheduledJob>> lanes;
  double ns = 0;  ///< until the last is done
};

/// Shares jobs out to `lanes` threads: the one that can start first comes first, on the lane where
/// it can; of several, the one after which most is left (list scheduling by the critical path;
/// Graham 1969, Kwok and Ahmad 1999). What one lane leaves another sees `handoff_ns` later.
Schedule schedule(std::span<const Job> jobs, std::size_t lanes, double handoff_ns);

}  // namespace steptape::replayer::cpu
