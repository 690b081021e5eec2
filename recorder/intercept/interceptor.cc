#include "recorder/intercept/interceptor.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <array>
#include <utility>

#include "steptape/error.h"

namespace steptape::recorder {

Interceptor& interceptor(InterceptorKind kind) {
  switch (kind) {
    case InterceptorKind::kDispatchMode:
      return dispatch_mode();
    case InterceptorKind::kFakeKey:
      return fake_key();
  }
  throw Error(ErrorCode::kInvalidArgument, "no interceptor of this kind exists");
}

namespace {

using Kind = c10::DebugInfoKind;

// Kinds are a closed set of LibTorch's. The first is meant for producers like this one; the second
// is used by LibTorch's own tests alone and stands in where the program uses the first itself.
// (No constant: from torch 2.15 on a kind is an object.)
std::array<Kind, 2> kinds() { return {Kind::PRODUCER_INFO, Kind::TEST_INFO_2}; }

struct ListenerInfo : c10::DebugInfoBase {
  explicit ListenerInfo(std::shared_ptr<OpListener> value) : listener(std::move(value)) {}
  std::shared_ptr<OpListener> listener;
};

/// Of the thread that called `listen`; found without a search, and there even if the step pushes
/// debug information of its own over ours.
thread_local OpListener* own_listener = nullptr;

Kind free_kind() {
  const auto [usual, other] = kinds();
  return c10::ThreadLocalDebugInfo::get(usual) == nullptr ? usual : other;
}

}  // namespace

struct ActiveListener::Guards {
  c10::DebugInfoGuard info;
};

OpListener* active_listener() noexcept {
  if (own_listener != nullptr) return own_listener;
  for (const Kind kind : kinds()) {
    if (auto* info = dynamic_cast<ListenerInfo*>(c10::ThreadLocalDebugInfo::get(kind))) {
      return info->listener.get();
    }
  }
  return nullptr;
}

ActiveListener::ActiveListener(std::shared_ptr<OpListener> listener)
    : previous_(std::exchange(own_listener, listener.get())) {
  auto info = std::make_shared<ListenerInfo>(std::move(listener));
  guards_.reset(new Guards{c10::DebugInfoGuard(free_kind(), std::move(info))});
}

ActiveListener::~ActiveListener() {
  guards_.reset();
  own_listener = previous_;
}

}  // namespace steptape::recorder
