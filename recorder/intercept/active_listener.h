#pragma once

#include <memory>

#include "recorder/intercept/interceptor.h"

namespace steptape::recorder {

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
  std::unique_ptr<Guards> guards_;
  OpListener* previous_;
};

}  // namespace steptape::recorder
