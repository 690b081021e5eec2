#include "recorder/context/scopes.h"

#include <vector>

namespace steptape::recorder {
namespace {

constexpr std::string_view kSeparator = " > ";

struct OpenScopes {
  std::string joined;
  std::vector<std::size_t> lengths;  ///< of `joined` before each open scope
};

thread_local OpenScopes open_scopes;

std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction& function) {
  OpenScopes& open = open_scopes;
  open.lengths.push_back(open.joined.size());
  if (!open.joined.empty()) open.joined += kSeparator;
  open.joined += function.name();
  return nullptr;
}

void on_leave(const at::RecordFunction&, at::ObserverContext*) {
  OpenScopes& open = open_scopes;
  if (open.lengths.empty()) return;
  open.joined.resize(open.lengths.back());
  open.lengths.pop_back();
}

}  // namespace

ScopeWatch::ScopeWatch() {
  open_scopes = {};
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&on_enter, &on_leave).scopes({at::RecordScope::USER_SCOPE}));
}

ScopeWatch::~ScopeWatch() {
  at::removeCallback(handle_);
  open_scopes = {};
}

const std::string& ScopeWatch::current() noexcept { return open_scopes.joined; }

}  // namespace steptape::recorder
