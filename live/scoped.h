#pragma once

#include <utility>

namespace steptape::live {

/// A slot holds this value while it lives, and after it what it held before.
template <typename T>
class Scoped {
 public:
  Scoped(T& slot, T value) : slot_(slot), before_(std::exchange(slot, std::move(value))) {}
  ~Scoped() { slot_ = std::move(before_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& slot_;
  T before_;
};

}  // namespace steptape::live
