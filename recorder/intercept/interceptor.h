#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <string_view>

namespace steptape::recorder {

/// Sees one op. `run` performs it on `stack`: arguments are there before, returns after. Called on
/// the thread that issued the op, which may be one of autograd's.
class OpListener {
 public:
  virtual ~OpListener() = default;
  virtual void on_op(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                     const std::function<void()>& run) = 0;
};

/// A way to see every op below autograd. Two implementations, one file each: the dispatch key
/// `Fake` (fake_key.cc), which a later torch takes for itself, and a torch-dispatch mode written in
/// C++ (dispatch_mode.cc), which needs no key and is the default.
class Interceptor {
 public:
  /// While it lives, ops of this thread, and of the threads autograd runs for it, reach the
  /// listener.
  class Scope {
   public:
    virtual ~Scope() = default;
  };

  virtual ~Interceptor() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual std::unique_ptr<Scope> listen(std::shared_ptr<OpListener> listener) = 0;
  /// Inside a scope of this thread's: no op reaches its listener any more, and LibTorch sees no
  /// trace of it. For code that looks at what intercepts it, as torch.compile does.
  virtual void suspend() = 0;
};

enum class InterceptorKind { kDispatchMode, kFakeKey };

/// The process's interceptor of this kind. Throws Error (unsupported) when the key is taken by
/// another library or the kind does not exist in this torch.
Interceptor& interceptor(InterceptorKind kind);

}  // namespace steptape::recorder
