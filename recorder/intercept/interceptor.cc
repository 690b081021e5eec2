#include "recorder/intercept/interceptor.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "steptape/error.h"

namespace steptape::recorder {

Interceptor& interceptor(Interception kind) {
  switch (kind) {
    case Interception::kDispatchMode:
      return dispatch_mode();
    case Interception::kFakeKey:
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

using c10::ThreadLocalDebugInfo;
using Info = std::pair<Kind, std::shared_ptr<c10::DebugInfoBase>>;

/// Takes off the newest that this thread has. Nothing where there is none, or one of a kind that is
/// not known here.
std::optional<Info> take_newest() {
  if (ThreadLocalDebugInfo::current() == nullptr) return std::nullopt;
  // the usual one of `kinds` first: to ask for another throws
  for (const Kind kind :
       {Kind::PRODUCER_INFO, Kind::PROFILER_STATE, Kind::TEST_INFO_2, Kind::PARAM_COMMS_INFO,
        Kind::INFERENCE_CONTEXT, Kind::MOBILE_RUNTIME_INFO, Kind::TEST_INFO}) {
    try {
      return Info{kind, ThreadLocalDebugInfo::_pop(kind)};
    } catch (const c10::Error&) {  // it is not of this kind: nothing else tells
    }
  }
  return std::nullopt;
}

}  // namespace

/// The step may start a profiler and end one that was there before, which push and pop theirs:
/// this one lies below all of them.
struct ActiveListener::Guards {
  explicit Guards(std::shared_ptr<OpListener> listener)
      : own(std::make_shared<ListenerInfo>(std::move(listener))) {
    const Kind kind = free_kind();
    std::vector<Info> above;
    while (auto info = take_newest()) above.push_back(*std::move(info));
    ThreadLocalDebugInfo::_push(kind, own);
    push_again(above);
  }
  ~Guards() {
    std::vector<Info> above;
    while (auto info = take_newest()) {
      if (info->second == own) break;
      above.push_back(*std::move(info));
    }
    push_again(above);
  }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

  static void push_again(std::vector<Info>& above) {
    for (; !above.empty(); above.pop_back())
      ThreadLocalDebugInfo::_push(above.back().first, std::move(above.back().second));
  }

  std::shared_ptr<c10::DebugInfoBase> own;
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
    : own_(own_listener, listener.get()), guards_(std::make_unique<Guards>(std::move(listener))) {}

ActiveListener::~ActiveListener() = default;

}  // namespace steptape::recorder
