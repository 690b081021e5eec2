#include "guards/module_guard.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "guards/entry.h"
#include "guards/mismatch.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::guards {
namespace {

/// So many modules before its turn comes is one fetched from memory.
constexpr std::size_t kNodesAhead = 4;

const void* object_of(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }
const void* object_of(const std::shared_ptr<torch::nn::Module>& module) { return module.get(); }

std::weak_ptr<torch::nn::Module> owner_of(const at::Tensor&) { return {}; }
std::weak_ptr<torch::nn::Module> owner_of(const std::shared_ptr<torch::nn::Module>& module) {
  return module;
}

bool is_owned_by(const at::Tensor&, const std::weak_ptr<torch::nn::Module>&) { return true; }
bool is_owned_by(const std::shared_ptr<torch::nn::Module>& module,
                 const std::weak_ptr<torch::nn::Module>& owner) {
  return !module.owner_before(owner) && !owner.owner_before(module);
}

const char* word_of(GuardKind kind) {
  if (kind == GuardKind::kParameters) return "parameter";
  return kind == GuardKind::kModuleBuffers ? "module buffer" : "sub-module";
}

}  // namespace

ModuleGuard::ModuleGuard(const live::Snapshot& snapshot) {
  for (const live::ModuleAt& at : snapshot.modules) {
    if (at.module == nullptr) continue;
    Node node{.path = at.path,
              .module = at.module,
              .training = at.training,
              .parameters = &live::parameters_of(*at.module),
              .buffers = &live::buffers_of(*at.module),
              .children = &live::sub_modules_of(*at.module),
              .first = registered_.size()};
    if (!node.parameters->is_empty()) node.first_parameter = &*node.parameters->begin();
    note(*node.parameters);
    node.buffers_at = registered_.size();
    note(*node.buffers);
    node.children_at = registered_.size();
    note(*node.children);
    node.last = registered_.size();
    options_.add(*at.module);
    nodes_.push_back(std::move(node));
  }
}

template <typename Dict>
void ModuleGuard::note(const Dict& dict) {
  for (const auto& item : dict) {
    registered_.push_back({item.key(), object_of(item.value()), owner_of(item.value())});
  }
}

Verdict ModuleGuard::check() const {
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    fetch(std::min(k + kNodesAhead, nodes_.size() - 1));
    if (!holds(nodes_[k])) return changed(nodes_[k]);
    if (options_.holds(k)) continue;
    if (Verdict verdict = options_.check(k, nodes_[k].path); !verdict) return verdict;
  }
  return {};
}

/// Where a module was is no more than an address: it may be gone.
void ModuleGuard::fetch(std::size_t k) const {
  const Node& node = nodes_[k];
  __builtin_prefetch(node.module);
  __builtin_prefetch(node.parameters);
  __builtin_prefetch(reinterpret_cast<const char*>(node.parameters) + kCacheLine);
  __builtin_prefetch(node.first_parameter);
  if (const void* option = options_.first(k)) __builtin_prefetch(option);
}

inline bool ModuleGuard::holds(const Node& node) const {
  return node.module->is_training() == node.training &&
         holds(*node.parameters, node.first, node.buffers_at) &&
         holds(*node.buffers, node.buffers_at, node.children_at) &&
         holds(*node.children, node.children_at, node.last);
}

template <typename Dict>
bool ModuleGuard::holds(const Dict& dict, std::size_t first, std::size_t last) const {
  if (dict.size() != last - first) return false;
  const Registered* expected = registered_.data() + first;
  for (const auto& item : dict) {
    if (object_of(item.value()) != expected->object || item.key() != expected->name ||
        !is_owned_by(item.value(), expected->owner)) {
      return false;
    }
    ++expected;
  }
  return true;
}

Verdict ModuleGuard::changed(const Node& node) const {
  if (node.module->is_training() != node.training) {
    return failed_flag(GuardKind::kTraining, node.path + ".training", node.training);
  }
  if (!holds(*node.parameters, node.first, node.buffers_at)) {
    return changed(GuardKind::kParameters, node, *node.parameters, node.first, node.buffers_at);
  }
  if (!holds(*node.buffers, node.buffers_at, node.children_at)) {
    return changed(GuardKind::kModuleBuffers, node, *node.buffers, node.buffers_at,
                   node.children_at);
  }
  return changed(GuardKind::kSubModules, node, *node.children, node.children_at, node.last);
}

template <typename Dict>
Verdict ModuleGuard::changed(GuardKind kind, const Node& node, const Dict& dict, std::size_t first,
                             std::size_t last) const {
  const std::string word = word_of(kind);
  const std::string as_recorded = "the " + word + " registered when it was recorded";
  for (std::size_t i = first; i < last; ++i) {
    const Registered& expected = registered_[i];
    const auto* found = dict.find(expected.name);
    if (found == nullptr)
      return failed(kind, trace::join_path(node.path, expected.name), as_recorded, "none");
    if (object_of(*found) != expected.object || !is_owned_by(*found, expected.owner)) {
      return failed(kind, trace::join_path(node.path, expected.name), as_recorded, "another");
    }
  }
  for (const auto& item : dict) {
    const auto known = [&](const Registered& expected) { return expected.name == item.key(); };
    if (std::none_of(registered_.begin() + static_cast<std::ptrdiff_t>(first),
                     registered_.begin() + static_cast<std::ptrdiff_t>(last), known)) {
      return failed(kind, trace::join_path(node.path, item.key()), "none", "a " + word);
    }
  }
  return failed(kind, node.path + " (" + word + "s)", "in the order of the recording",
                "in another order");
}

namespace {

/// Whether the words say all: of a tensor, a module or a function they do not say which one it is.
bool says_all(const trace::Value& value) {
  if (const auto* list = std::get_if<trace::List>(&value.data)) {
    return std::ranges::all_of(*list, says_all);
  }
  return !std::holds_alternative<trace::Opaque>(value.data);
}

}  // namespace

void OptionGuard::Bytes::add(Option& option, const std::byte* was) {
  option.bytes_at = then.size();
  const std::size_t first = ends.back();
  for (const std::span<const std::byte> bytes : option.live.bytes) {
    const bool is_next =
        stretches.size() > first && stretches.back().live + stretches.back().size == bytes.data();
    if (!is_next) stretches.push_back({bytes.data(), 0, then.size()});
    stretches.back().size += bytes.size();
    const std::byte* from = was == nullptr ? bytes.data() : was;
    then.insert(then.end(), from, from + bytes.size());
    if (was != nullptr) was += bytes.size();
  }
}

std::vector<OptionGuard::Option> OptionGuard::options_of(const torch::nn::Module& module) {
  std::vector<Option> options;
  for (live::ModuleOption& option : live::module_options(module)) {
    trace::Value value = option.read(option.object);
    options.push_back({std::move(option), std::move(value), 0});
  }
  return options;
}

void OptionGuard::add(const torch::nn::Module& module) {
  modules_.push_back({&module, options_of(module)});
  for (Option& option : modules_.back().options) bytes_.add(option, nullptr);
  bytes_.end_module();
}

const void* OptionGuard::first(std::size_t k) const {
  return bytes_.ends[k] == bytes_.ends[k + 1] ? nullptr : bytes_.stretches[bytes_.ends[k]].live;
}

/// In order: what an option points to is there as long as its own bytes are the same.
bool OptionGuard::holds(std::size_t k) const {
  for (std::size_t s = bytes_.ends[k]; s < bytes_.ends[k + 1]; ++s) {
    const Stretch& stretch = bytes_.stretches[s];
    if (std::memcmp(stretch.live, bytes_.then.data() + stretch.at, stretch.size) != 0) return false;
  }
  return true;
}

bool OptionGuard::has_bytes(const Option& option) const {
  const std::byte* was = bytes_.then.data() + option.bytes_at;
  for (const std::span<const std::byte> bytes : option.live.bytes) {
    if (std::memcmp(bytes.data(), was, bytes.size()) != 0) return false;
    was += bytes.size();
  }
  return true;
}

bool OptionGuard::has_value(const Option& expected, const Option& found) const {
  return found.expected == expected.expected &&
         (says_all(expected.expected) || has_bytes(expected));
}

Verdict OptionGuard::check(std::size_t k, const std::string& path) const {
  const Module& module = modules_[k];
  std::vector<Option> now = options_of(*module.module);
  for (std::size_t i = 0; i < module.options.size(); ++i) {
    const Option& expected = module.options[i];
    if (i < now.size() && has_value(expected, now[i])) continue;
    const std::string was = trace::words_of(expected.expected);
    const std::string is = i < now.size() ? trace::words_of(now[i].expected) : "none";
    return failed(GuardKind::kModuleOption, path + "." + expected.live.name, was,
                  is == was ? "another" : is);
  }
  renew(k, std::move(now));
  return {};
}

void OptionGuard::renew(std::size_t k, std::vector<Option> options) const {
  modules_[k].options = std::move(options);
  Bytes bytes;
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    for (Option& option : modules_[m].options) {
      bytes.add(option, m == k ? nullptr : bytes_.then.data() + option.bytes_at);
    }
    bytes.end_module();
  }
  bytes_ = std::move(bytes);
}

}  // namespace steptape::guards
