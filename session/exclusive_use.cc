#include "session/exclusive_use.h"

#include <mutex>
#include <unordered_set>

#include "steptape/error.h"

namespace steptape::session {
namespace {

std::mutex& mutex() {
  static std::mutex instance;
  return instance;
}

std::unordered_set<const void*>& in_use() {
  static std::unordered_set<const void*> instance;
  return instance;
}

thread_local bool inside = false;

}  // namespace

ExclusiveUse::ExclusiveUse(const std::vector<const void*>& objects, const std::string& step,
                           const std::string& names)
    : objects_(objects) {
  const std::lock_guard<std::mutex> lock(mutex());
  for (const void* object : objects) {
    if (!in_use().contains(object)) continue;
    throw Error(
        ErrorCode::kFailedPrecondition,
        "step \"" + step + "\": another thread is inside a step over the same objects (" + names +
            "). Steps over one object take turns: call them from one thread, or guard them with a "
            "mutex. Nothing was changed");
  }
  in_use().insert(objects.begin(), objects.end());
}

ExclusiveUse::~ExclusiveUse() {
  const std::lock_guard<std::mutex> lock(mutex());
  for (const void* object : objects_) in_use().erase(object);
}

InsideStep::InsideStep() { inside = true; }
InsideStep::~InsideStep() { inside = false; }
bool InsideStep::now() noexcept { return inside; }

}  // namespace steptape::session
