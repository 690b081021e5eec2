#include "replayer/runtime/cpu/lanes/lanes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <thread>
#include <utility>

#include "replayer/runtime/below_autograd.h"

namespace steptape::replayer::cpu {
namespace {

/// A thread that waits looks so often before it lets others have the processor: some microseconds,
/// which is what jobs take.
constexpr int kLooks = 2000;
/// Before the caller takes the lanes whose threads have not come.
constexpr int kPatience = 500;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Lanes::Lanes(Schedule schedule, std::vector<Kernel*> kernels)
    : schedule_(std::move(schedule)),
      kernels_(std::move(kernels)),
      lanes_(std::make_unique<Lane[]>(schedule_.lanes.size())),
      team_(schedule_.lanes.size()) {
  for (std::size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
    end_.push_back({lane, schedule_.lanes[lane].size()});
  }
}

void Lanes::run() {
  is_failing_.store(false, std::memory_order_relaxed);
  has_failed_.store(false, std::memory_order_relaxed);
  for (std::size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
    lanes_[lane].done.store(0, std::memory_order_relaxed);
    // who takes it sees all that came before
    lanes_[lane].is_taken.store(false, std::memory_order_release);
  }
  const std::thread::id caller = std::this_thread::get_id();
  team_.run([&](std::size_t lane) {
    if (!take(lane)) return;
    if (std::this_thread::get_id() == caller) {
      Worker worker{{lane}, true};
      return work(worker);
    }
    const BelowAutograd below;
    Worker worker{{lane}, false};
    work(worker);
  });
  if (has_failed_.load(std::memory_order_acquire)) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

bool Lanes::take(std::size_t lane) {
  bool is_taken = false;
  return lanes_[lane].is_taken.compare_exchange_strong(is_taken, true, std::memory_order_acquire,
                                                       std::memory_order_relaxed);
}

bool Lanes::take_all(Worker& worker) {
  const std::size_t before = worker.lanes.size();
  for (std::size_t lane = 0; lane < schedule_.lanes.size(); ++lane) {
    if (take(lane)) worker.lanes.push_back(lane);
  }
  return worker.lanes.size() > before;
}

std::optional<std::size_t> Lanes::next_lane(const Worker& worker) const {
  std::optional<std::size_t> next;
  std::size_t order = 0;
  for (const std::size_t lane : worker.lanes) {
    const std::size_t done = lanes_[lane].done.load(std::memory_order_relaxed);
    if (done == schedule_.lanes[lane].size()) continue;
    const std::size_t own = schedule_.lanes[lane][done].order;
    if (next && own > order) continue;
    next = lane;
    order = own;
  }
  return next;
}

void Lanes::work(Worker& worker) {
  try {
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const std::optional<std::size_t> lane = next_lane(worker);
      if (!lane) {
        if (!worker.takes_more || await_all(end_, worker)) return;
        continue;
      }
      const std::size_t done = lanes_[*lane].done.load(std::memory_order_relaxed);
      const ScheduledJob& job = schedule_.lanes[*lane][done];
      if (!await_all(job.waits, worker)) continue;
      kernels_[job.job]->run();
      lanes_[*lane].done.store(done + 1, std::memory_order_release);
    }
  } catch (...) {
    fail();
  }
}

bool Lanes::await_all(const std::vector<Wait>& waits, Worker& worker) {
  return std::ranges::all_of(waits, [&](const Wait& wait) { return await(wait, worker); });
}

bool Lanes::await(const Wait& wait, Worker& worker) {
  for (int looks = 0; lanes_[wait.lane].done.load(std::memory_order_acquire) < wait.done; ++looks) {
    if (has_failed_.load(std::memory_order_relaxed)) return false;
    if (worker.takes_more && looks >= kPatience && take_all(worker)) return false;
    looks < kLooks ? pause() : std::this_thread::yield();
  }
  return true;
}

void Lanes::fail() {
  if (is_failing_.exchange(true, std::memory_order_relaxed)) return;
  failure_ = std::current_exception();
  has_failed_.store(true, std::memory_order_release);
}

}  // namespace steptape::replayer::cpu
