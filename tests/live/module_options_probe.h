#pragma once

#include <c10/util/Type.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string>
#include <typeinfo>
#include <vector>

#include "live/module_options.h"

namespace steptape::live {

template <typename Module>
using OptionsOf = decltype(std::declval<Module&>()->options);

/// What a guard keeps of a module, and how it compares.
class KeptBytes {
 public:
  explicit KeptBytes(const torch::nn::Module& module) : options_(module_options(module)) {
    for (const ModuleOption& option : options_) {
      auto& copies = copies_.emplace_back();
      for (const auto bytes : option.bytes) copies.emplace_back(bytes.begin(), bytes.end());
      values_.push_back(option.read(option.object));
    }
  }

  const std::vector<ModuleOption>& options() const { return options_; }

  std::vector<std::string> changed() const {
    std::vector<std::string> names;
    for (std::size_t k = 0; k < options_.size(); ++k) {
      if (!is_same(k)) names.push_back(options_[k].name);
    }
    return names;
  }

  /// Whether the words for option `name` are others now, or for an object as before.
  bool is_told(const std::string& name) const {
    const auto k = std::ranges::find(options_, name, &ModuleOption::name) - options_.begin();
    const trace::Value now = options_.at(k).read(options_.at(k).object);
    return std::holds_alternative<trace::Opaque>(now.data) || now != values_.at(k);
  }

 private:
  bool is_same(std::size_t k) const {
    for (std::size_t i = 0; i < copies_[k].size(); ++i) {
      if (!std::ranges::equal(options_[k].bytes[i], copies_[k][i])) return false;
    }
    return true;
  }

  std::vector<ModuleOption> options_;
  std::vector<std::vector<std::vector<std::byte>>> copies_;
  std::vector<trace::Value> values_;
};

/// Changes all that a module has, one after the other, and expects that just this is seen. Prints
/// what it has, which module_options_headers_test.py compares with the headers of LibTorch.
template <typename Module>
class ModuleProbe {
 public:
  explicit ModuleProbe(Module module) : module_(std::move(module)) {
    for (const ModuleOption& option : module_options(*module_)) unchanged_.insert(option.name);
    std::cout << "module " << type() << ":";
    for (const std::string& name : unchanged_) std::cout << ' ' << name;
    std::cout << '\n';
  }
  ~ModuleProbe() { EXPECT_THAT(unchanged_, testing::IsEmpty()) << type() << " was not probed"; }
  ModuleProbe(const ModuleProbe&) = delete;
  ModuleProbe& operator=(const ModuleProbe&) = delete;

  template <typename Options, typename T, typename Other>
  ModuleProbe& option(const std::string& name, T& (Options::*get)() noexcept, Other other) {
    if constexpr (std::is_same_v<Options, OptionsOf<Module>>) {
      expect_seen("options." + name, [&] { (module_->options.*get)() = other; });
    } else {
      expect_seen("options_base." + name, [&] { (module_->options_base.*get)() = other; });
    }
    return *this;
  }

  template <typename Class, typename T>
  ModuleProbe& member(const std::string& name, T Class::*where, T other) {
    expect_seen(name, [&] { (*module_).*where = other; });
    return *this;
  }

 private:
  std::string type() const {
    const torch::nn::Module& module = *module_;
    return c10::demangle(typeid(module).name());
  }

  template <typename Change>
  void expect_seen(const std::string& name, Change change) {
    const KeptBytes kept(*module_);
    EXPECT_THAT(kept.changed(), testing::IsEmpty()) << type();
    change();
    EXPECT_THAT(kept.changed(), testing::ElementsAre(name)) << type();
    EXPECT_TRUE(kept.is_told(name)) << type() << '.' << name;
    EXPECT_EQ(unchanged_.erase(name), 1) << type() << '.' << name;
  }

  Module module_;
  std::set<std::string> unchanged_;
};

}  // namespace steptape::live
