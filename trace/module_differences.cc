#include "trace/module_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "trace/path.h"
#include "trace/sequence.h"
#include "trace/text.h"

namespace steptape::trace {
namespace {

std::vector<Property> properties_of(const Recording& recording) {
  std::vector<Property> properties;
  for (const Module& module : recording.modules) {
    const auto add = [&](const std::string& path, std::string words) {
      properties.push_back({module.path, path, std::move(words)});
    };
    add(module.path, module.type);
    add(module.path + ".training", module.training ? "true" : "false");
    for (const NamedValue& option : module.options) {
      add(module.path + "." + option.name, words_of(option.value));
    }
    if (module.aliases.empty()) continue;
    add(module.path + " (other paths)", fmt::format("{}", fmt::join(module.aliases, ", ")));
  }
  return properties;
}

/// "model.fc1@2" for each call, in order.
std::vector<std::string> calls_of(const Recording& recording) {
  std::vector<ModuleAccess> accesses = recording.module_access;
  std::ranges::stable_sort(accesses, {}, &ModuleAccess::first_op);
  std::vector<std::string> calls;
  for (const ModuleAccess& access : accesses) {
    calls.push_back(call_path(recording.modules[access.module].path, access.call));
  }
  return calls;
}

class CallComparison {
 public:
  CallComparison(const Recording& a, const Recording& b) : a_(calls_of(a)), b_(calls_of(b)) {
    for (Index i = 0; i < b_.size(); ++i) at_b_.emplace(b_[i], i);
    for (Index i = 0; i < a_.size(); ++i) at_a_.emplace(a_[i], i);
    for (const Module& module : a.modules) in_a_.emplace(module.path, true);
    for (const Module& module : b.modules) in_b_.emplace(module.path, true);
  }

  void add_to(std::vector<Finding>& findings) const {
    std::vector<Index> both, order;
    for (Index i = 0; i < a_.size(); ++i) {
      const auto found = at_b_.find(a_[i]);
      if (found != at_b_.end()) {
        both.push_back(i);
        order.push_back(found->second);
      } else if (has_module(in_b_, a_[i])) {
        findings.push_back({"call " + a_[i], place_of(a_, i), "absent"});
      }
    }
    for (Index i = 0; i < b_.size(); ++i) {
      if (at_a_.contains(b_[i]) || !has_module(in_a_, b_[i])) continue;
      findings.push_back({"call " + b_[i], "absent", place_of(b_, i)});
    }
    add_moved(findings, both, order);
  }

 private:
  using Modules = std::unordered_map<std::string, bool>;

  /// Calls of a module that one side lacks are told with it.
  static bool has_module(const Modules& modules, const std::string& call) {
    Path path = parse_path(call);
    path.call = 1;
    return modules.contains(text_of(path));
  }

  void add_moved(std::vector<Finding>& findings, const std::vector<Index>& both,
                 const std::vector<Index>& order) const {
    const std::vector<Index> kept = longest_increasing(order);
    for (Index i = 0; i < both.size(); ++i) {
      if (std::ranges::binary_search(kept, i)) continue;
      findings.push_back({"call " + a_[both[i]], place_of(a_, both[i]), place_of(b_, order[i])});
    }
  }

  static std::string place_of(const std::vector<std::string>& calls, Index position) {
    return position == 0 ? "the first" : "behind " + calls[position - 1];
  }

  std::vector<std::string> a_, b_;
  std::unordered_map<std::string, Index> at_a_, at_b_;
  Modules in_a_, in_b_;
};

}  // namespace

std::vector<Finding> module_differences(const Recording& a, const Recording& b) {
  std::vector<Finding> findings = differences(properties_of(a), properties_of(b));
  CallComparison(a, b).add_to(findings);
  return findings;
}

}  // namespace steptape::trace
