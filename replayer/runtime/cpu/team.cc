#include "replayer/runtime/cpu/team.h"

#include <ATen/ops/zeros.h>
#include <pthread.h>

#include <atomic>
#include <cfenv>

namespace steptape::replayer::cpu {
namespace {

/// In a process that was forked off another one, whose threads it does not have. OpenMP waits for
/// them for ever.
std::atomic<bool> is_forked = false;

/// Before anything can have forked.
[[maybe_unused]] const int kWatchesForks =
    pthread_atfork(nullptr, nullptr, [] { is_forked.store(true, std::memory_order_relaxed); });

/// What the caller did before comes before the work, and that before what the caller does after.
/// OpenMP sees to it, but ThreadSanitizer, which these are for, does not see into OpenMP.
class Edge {
 public:
#if defined(__SANITIZE_THREAD__)
  void publish() { count_.fetch_add(1, std::memory_order_release); }
  void see() const { count_.load(std::memory_order_acquire); }

 private:
  std::atomic<int> count_ = 0;
#else
  void publish() {}
  void see() const {}
#endif
};
Edge begins, ends;

/// What a thread does to denormals, and how it rounds, is its own: members do it as the caller.
class FloatingPoint {
 public:
  FloatingPoint() { std::fegetenv(&is_); }
  void set() const { std::fesetenv(&is_); }

 private:
  std::fenv_t is_{};
};

class SetFloatingPoint {
 public:
  explicit SetFloatingPoint(const FloatingPoint& now) { now.set(); }
  ~SetFloatingPoint() { before_.set(); }
  SetFloatingPoint(const SetFloatingPoint&) = delete;
  SetFloatingPoint& operator=(const SetFloatingPoint&) = delete;

 private:
  FloatingPoint before_;
};

struct PublishEnd {
  ~PublishEnd() { ends.publish(); }
};
struct SeeEnds {
  ~SeeEnds() { ends.see(); }
};

}  // namespace

Team::Team(std::size_t members)
    : members_(at::zeros({static_cast<std::int64_t>(members)}, at::kByte)),
      iterator_(at::TensorIterator::nullary_op(members_)) {}

void Team::run(c10::function_ref<void(std::size_t member)> work) {
  if (is_forked.load(std::memory_order_relaxed)) {
    for (std::int64_t i = 0; i < members_.numel(); ++i) work(static_cast<std::size_t>(i));
    return;
  }
  const auto* const first = members_.const_data_ptr<std::uint8_t>();
  // an iterator's loop is what LibTorch shares out to its threads for others, too: a header's
  // at::parallel_for is a plain loop where it is not compiled with LibTorch's OpenMP
  const FloatingPoint callers;
  const auto loop = [&](char** data, const std::int64_t*, std::int64_t count, std::int64_t) {
    begins.see();
    const PublishEnd end;
    const SetFloatingPoint as_the_caller(callers);
    const auto at = reinterpret_cast<const std::uint8_t*>(data[0]) - first;
    for (std::int64_t i = at; i < at + count; ++i) work(static_cast<std::size_t>(i));
  };
  begins.publish();
  const SeeEnds behind;
  iterator_.for_each(loop, 1);
}

}  // namespace steptape::replayer::cpu
