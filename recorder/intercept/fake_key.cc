#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "recorder/intercept/interceptor.h"
#include "steptape/error.h"

namespace steptape::recorder {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

struct Call {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet below;
  torch::jit::Stack* stack;

  void run() const {
    c10::impl::ExcludeDispatchKeyGuard once(kKey);
    op.redispatchBoxed(below, stack);
  }
};

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (runs_composite(op, below)) return op.redispatchBoxed(below, stack);
  const Call call{op, below, stack};
  OpListener* listener = active_listener();
  if (listener == nullptr) return call.run();
  listener->on_op(op, *stack, [&call] { call.run(); });
}

class FakeKeyScope final : public Interceptor::Scope {
 public:
  explicit FakeKeyScope(std::shared_ptr<OpListener> listener) : active_(std::move(listener)) {}

 private:
  ActiveListener active_;
  c10::impl::IncludeDispatchKeyGuard include_{kKey};
};

class FakeKey final : public Interceptor {
 public:
  FakeKey() {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) {
      throw Error(ErrorCode::kUnsupported,
                  "the dispatch key Fake has a fallback already, from this torch or another "
                  "library: use the dispatch mode");
    }
    library_.fallback(torch::CppFunction::makeFromBoxedFunction<&on_call>());
  }

  std::string_view name() const noexcept override { return "fake_key"; }
  std::unique_ptr<Scope> listen(std::shared_ptr<OpListener> listener) override {
    return std::make_unique<FakeKeyScope>(std::move(listener));
  }
  // the guard of the scope takes the key out once more
  void suspend() override { c10::impl::tls_set_dispatch_key_included(kKey, false); }

 private:
  torch::Library library_{torch::Library::IMPL, "_", kKey, __FILE__, __LINE__};
};

}  // namespace

Interceptor& fake_key() {
  // Never destroyed: the dispatcher may go first at exit.
  static auto* interceptor = new FakeKey();
  return *interceptor;
}

}  // namespace steptape::recorder
