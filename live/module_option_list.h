#pragma once

#include <string>
#include <utility>
#include <vector>

#include "live/module_options.h"
#include "live/option_bytes.h"
#include "live/option_value.h"

namespace steptape::live {

/// Collects what a module has: the objects themselves, by their C++ types.
class ModuleOptionList {
 public:
  template <typename T>
  void option(std::string name, const T& object) {
    add(std::move(name), ModuleOptionKind::kOption, object);
  }
  template <typename T>
  void member(std::string name, const T& object) {
    add(std::move(name), ModuleOptionKind::kMember, object);
  }
  std::vector<ModuleOption> take() { return std::move(options_); }

 private:
  template <typename T>
  void add(std::string name, ModuleOptionKind kind, const T& object) {
    options_.push_back({std::move(name), kind, &object, &read<T>, OptionBytes::of(object)});
  }
  template <typename T>
  static trace::Value read(const void* object) {
    return OptionValue::of(*static_cast<const T*>(object));
  }

  std::vector<ModuleOption> options_;
};

}  // namespace steptape::live
