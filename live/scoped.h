#pragma once

#include <thread>
#include <utility>

namespace steptape::live {

/// A slot of a thread holds this value while it lives, and after it what it held before. One that
/// is freed by another thread leaves the slot alone, whose thread may have ended.
template <typename T>
class Scoped {
 public:
  Scoped(T& slot, T value) : slot_(slot), before_(std::exchange(slot, std::move(value))) {}
  ~Scoped() {
    if (thread_ == std::this_thread::get_id()) slot_ = std::move(before_);
  }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& slot_;
  T before_;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace steptape::live
