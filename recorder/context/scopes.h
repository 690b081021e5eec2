#pragma once

#include <ATen/record_function.h>

#include <string>

namespace steptape::recorder {

/// Follows RECORD_FUNCTION's user scopes in this thread while it lives.
class ScopeWatch {
 public:
  ScopeWatch();
  ~ScopeWatch();
  ScopeWatch(const ScopeWatch&) = delete;
  ScopeWatch& operator=(const ScopeWatch&) = delete;

  /// The open user scopes of this thread, outermost first, joined by " > "; empty outside all.
  static const std::string& current() noexcept;

 private:
  at::CallbackHandle handle_;
};

}  // namespace steptape::recorder
