#include "recorder/frontend_hints.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>

namespace steptape::recorder {
namespace {

thread_local FrontendHints* current_hints = nullptr;
std::atomic<FrontendHints::Locate> locator = nullptr;
std::atomic<FrontendHints::Collect> collector = nullptr;

}  // namespace

FrontendHints* FrontendHints::current() noexcept { return current_hints; }
FrontendHints::Scope FrontendHints::make_current(FrontendHints* hints) {
  return {current_hints, hints};
}

trace::Index FrontendHints::leaf(trace::LeafKind kind, const std::string& path) {
  const trace::Leaf leaf{kind, path};
  const auto found = std::ranges::find(leaves_, leaf);
  if (found == leaves_.end()) {
    leaves_.push_back(leaf);
    return static_cast<trace::Index>(leaves_.size() - 1);
  }
  return static_cast<trace::Index>(found - leaves_.begin());
}

void FrontendHints::require(trace::Formula formula, bool is_nonzero) {
  if (!trace::is_well_formed(formula, leaves_.size())) {  // too deep to be evaluated
    for (const trace::Index leaf : trace::leaves_of(formula)) said.escaped.insert(leaf);
    return;
  }
  conditions_.push_back({std::move(formula), is_nonzero});
}

void FrontendHints::note_held(trace::Index leaf) {
  const auto [entry, is_new] = held_.try_emplace(leaf);
  if (is_new) entry->second = place();
}

void FrontendHints::enter_module(std::string path, const void* module) {
  const std::uint32_t call = ++calls_of_[path];
  const auto node = torch::autograd::get_current_node();
  open_calls_.push_back({std::move(path), call, calls_++, module, node.get()});
}

void FrontendHints::leave_module(const void* module) {
  const auto newest =
      std::find_if(open_calls_.rbegin(), open_calls_.rend(),
                   [module](const ModuleCall& call) { return call.module == module; });
  if (newest != open_calls_.rend()) open_calls_.erase(newest.base() - 1, open_calls_.end());
}

void FrontendHints::set_locator(Locate locate) noexcept { locator = locate; }

std::string FrontendHints::place() {
  const Locate locate = locator.load(std::memory_order_relaxed);
  return locate == nullptr ? std::string() : locate();
}

void FrontendHints::set_collector(Collect collect) noexcept { collector = collect; }

void FrontendHints::collect_garbage() {
  if (const Collect collect = collector.load(std::memory_order_relaxed)) collect();
}

void FrontendHints::announce(std::vector<Number> numbers, std::string function) {
  announced_ = std::move(numbers);
  is_announcing_ = true;
  function_ = std::move(function);
  first_site_ = sites_.size();
  ops_since_ = 0;
  does_more_ = false;
}

void FrontendHints::note_op(std::string_view op, bool has_node) {
  ++ops_since_;
  // a function of another name may look at the number before it calls the op
  does_more_ |= has_node || (!function_.empty() && op.substr(op.rfind(':') + 1) != function_);
}

void FrontendHints::withdraw() {
  announced_.clear();
  is_announcing_ = false;
  if (ops_since_ != 1 || does_more_) return;
  for (std::size_t i = first_site_; i < sites_.size(); ++i)
    sites_[i].is_all = !sites_[i].is_doubtful;
}

void FrontendHints::take(std::size_t position, const trace::ScalarSite& site,
                         trace::Formula formula) {
  add_site(site, std::move(formula));
  announced_.erase(announced_.begin() + static_cast<std::ptrdiff_t>(position));
}

}  // namespace steptape::recorder
