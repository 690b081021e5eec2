#include "guards/option_guard.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "guards/mismatch.h"
#include "trace/text/text.h"

namespace steptape::guards {
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
