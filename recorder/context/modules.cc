#include "recorder/context/modules.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "live/module_options.h"
#include "trace/path.h"

namespace steptape::recorder {

void ModuleWatch::enter(const live::Snapshot& snapshot) {
  for (const live::ModuleAt& module : snapshot.modules) {
    const auto index = static_cast<trace::Index>(recording_.modules.size());
    by_path_.emplace(module.path, index);
    for (const std::string& alias : module.aliases) by_path_.emplace(alias, index);
    parents_.push_back(of_path(std::string(trace::parent_path(module.path))));
    auto options = module.module == nullptr ? std::vector<trace::NamedValue>()
                                            : live::option_values(*module.module);
    recording_.modules.push_back(
        {module.path, module.type(), module.training, std::move(options), module.aliases});
  }
  first_below_.assign(recording_.modules.size(), trace::kNone);
  calls_.assign(recording_.modules.size(), 0);
}

trace::Index ModuleWatch::of_path(const std::string& path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? trace::kNone : found->second;
}

void ModuleWatch::own(trace::BufferId buffer, const std::string& path) {
  const trace::Index module = of_path(std::string(trace::parent_path(path)));
  if (module == trace::kNone) return;
  if (owners_.size() <= buffer) owners_.resize(buffer + 1, trace::kNone);
  if (owners_[buffer] == trace::kNone) owners_[buffer] = module;
}

trace::Index ModuleWatch::owner(trace::BufferId buffer) const {
  return buffer < owners_.size() ? owners_[buffer] : trace::kNone;
}

ModuleCall ModuleWatch::issued_in(const std::vector<FrontendHints::ModuleCall>& open,
                                  trace::Index op) {
  if (open.empty()) return {};
  if (open.back().position == newest_position_) return newest_;
  newest_position_ = open.back().position;
  newest_ = {};
  for (const FrontendHints::ModuleCall& told : open) {
    const trace::Index module = of_path(told.path);
    if (module == trace::kNone) continue;
    newest_ = {module, told.call};
    note(newest_, op);
  }
  return newest_;
}

void ModuleWatch::note(const ModuleCall& call, trace::Index op) {
  if (call.call <= calls_[call.module]) return;
  calls_[call.module] = call.call;
  recording_.module_access.push_back({call.module, call.call, op});
  for (trace::Index outer = parents_[call.module]; outer != trace::kNone; outer = parents_[outer]) {
    if (first_below_[outer] == trace::kNone) first_below_[outer] = op;
  }
}

trace::Index ModuleWatch::around(trace::Index a, trace::Index b) const {
  while (a != b && a != trace::kNone && b != trace::kNone) {
    trace::Index& inner = a > b ? a : b;
    inner = parents_[inner];
  }
  return a == b ? a : trace::kNone;
}

void ModuleWatch::sort() {
  std::ranges::stable_sort(recording_.module_access, {}, [](const trace::ModuleAccess& access) {
    return std::tuple(access.first_op, access.module);
  });
}

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
