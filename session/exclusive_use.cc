#include "session/exclusive_use.h"

#include <pthread.h>

#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "steptape/error.h"

namespace steptape::session {
namespace {

std::mutex& mutex() {
  static std::mutex instance;
  return instance;
}

/// Objects that steps hold, and the thread of each.
std::unordered_map<const void*, std::thread::id>& in_use() {
  static std::unordered_map<const void*, std::thread::id> instance;
  return instance;
}

/// Of the threads that were inside a step when the process forked the child has none.
[[maybe_unused]] const int kForks = pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); },
                                                   [] {
                                                     in_use().clear();
                                                     mutex().unlock();
                                                   });

thread_local InsideStep::Depth depth = InsideStep::Depth::kOutside;
thread_local bool foreign_values = false;

}  // namespace

ExclusiveUse::ExclusiveUse(const std::vector<const void*>& objects, const std::string& step,
                           const std::string& names) {
  const std::lock_guard<std::mutex> lock(mutex());
  const auto self = std::this_thread::get_id();
  for (const void* object : objects) {
    const auto holder = in_use().find(object);
    if (holder == in_use().end() || holder->second == self) continue;
    throw Error(
        ErrorCode::kFailedPrecondition,
        "step \"" + step + "\": another thread is inside a step over the same objects (" + names +
            "). Steps over one object take turns: call them from one thread, or guard them with a "
            "mutex. Nothing was changed");
  }
  for (const void* object : objects) {
    if (in_use().try_emplace(object, self).second) taken_.push_back(object);
  }
}

ExclusiveUse::~ExclusiveUse() {
  const std::lock_guard<std::mutex> lock(mutex());
  for (const void* object : taken_) in_use().erase(object);
}

InsideStep::InsideStep(Depth now) : depth_(depth, now) {}
InsideStep::Depth InsideStep::now() noexcept { return depth; }
void InsideStep::note_foreign_values() noexcept { foreign_values = true; }
bool InsideStep::take_foreign_values() noexcept { return std::exchange(foreign_values, false); }

}  // namespace steptape::session
