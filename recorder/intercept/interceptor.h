#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <functional>
#include <memory>
#include <string_view>

#include "live/scoped.h"
#include "steptape/options.h"

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
/// C++ (dispatch_mode.cc), which needs no key.
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

/// The process's interceptor of this kind. Throws Error (unsupported) when the key is taken by
/// another library or the kind does not exist in this torch.
Interceptor& interceptor(Interception kind);

/// The two implementations; each registers what it needs at its first call.
Interceptor& dispatch_mode();
Interceptor& fake_key();

/// Whether a call of `op` with these keys runs its CompositeImplicitAutograd kernel: other ops and
/// nothing else. Autograd decomposes such ops before an interceptor sees them; in inference mode
/// it does not, and the interceptor lets what is inside come to itself.
inline bool runs_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         !op.hasKernelForDispatchKey(keys.highestPriorityTypeId());
}

/// The listener of the step that this thread works for, or null. Autograd's threads and at::launch
/// inherit it through c10::ThreadLocalDebugInfo, which they take over from the thread that gave
/// them the work; a thread_local of ours would not reach them.
OpListener* active_listener() noexcept;

/// Makes `listener` the active one of this thread while it lives.
class ActiveListener {
 public:
  explicit ActiveListener(std::shared_ptr<OpListener> listener);
  ~ActiveListener();
  ActiveListener(const ActiveListener&) = delete;
  ActiveListener& operator=(const ActiveListener&) = delete;

 private:
  struct Guards;
  live::Scoped<OpListener*> own_;
  std::unique_ptr<Guards> guards_;
};

}  // namespace steptape::recorder
