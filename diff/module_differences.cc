#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "diff/align/sequence.h"
#include "diff/sections.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

std::vector<trace::Property> modules_of(const trace::Recording& recording) {
  std::vector<trace::Property> properties;
  for (const trace::Module& module : recording.modules) {
    const auto add = [&](const std::string& path, std::string words) {
      properties.push_back({module.path, path, std::move(words)});
    };
    add(module.path, module.type);
    add(module.path + ".training", module.training ? "true" : "false");
    for (const trace::NamedValue& option : module.options) {
      add(module.path + "." + option.name, words_of(option.value));
    }
    if (module.aliases.empty()) continue;
    add(module.path + " (other paths)", fmt::format("{}", fmt::join(module.aliases, ", ")));
  }
  return properties;
}

/// What a file calls modules need be no paths, and several may have one name.
struct Call {
  std::string path;     ///< "model.fc1@2"
  std::size_t nth = 0;  ///< of the calls of that path
  std::string module;   ///< "model.fc1"

  auto key() const { return std::pair(path, nth); }
};

/// In their order.
std::vector<Call> calls_of(const trace::Recording& recording) {
  std::vector<trace::ModuleAccess> accesses = recording.module_access;
  std::ranges::stable_sort(accesses, {}, &trace::ModuleAccess::first_op);
  std::vector<Call> calls;
  std::unordered_map<std::string, std::size_t> seen;
  for (const trace::ModuleAccess& access : accesses) {
    const std::string& module = recording.modules[access.module].path;
    std::string path = trace::call_path(module, access.call);
    const std::size_t nth = seen[path]++;
    calls.push_back({std::move(path), nth, module});
  }
  return calls;
}

class CallComparison {
 public:
  CallComparison(const trace::Recording& a, const trace::Recording& b)
      : a_(calls_of(a)), b_(calls_of(b)) {
    for (trace::Index i = 0; i < b_.size(); ++i) at_b_.emplace(b_[i].key(), i);
    for (trace::Index i = 0; i < a_.size(); ++i) at_a_.emplace(a_[i].key(), i);
    for (const trace::Module& module : a.modules) in_a_.insert(module.path);
    for (const trace::Module& module : b.modules) in_b_.insert(module.path);
  }

  void add_to(std::vector<trace::Finding>& findings) const {
    std::vector<trace::Index> both, order;
    for (trace::Index i = 0; i < a_.size(); ++i) {
      const auto found = at_b_.find(a_[i].key());
      if (found != at_b_.end()) {
        both.push_back(i);
        order.push_back(found->second);
      } else if (in_b_.contains(a_[i].module)) {  // else it is told with its module
        findings.push_back({"call " + a_[i].path, place_of(a_, i), "absent"});
      }
    }
    for (trace::Index i = 0; i < b_.size(); ++i) {
      if (at_a_.contains(b_[i].key()) || !in_a_.contains(b_[i].module)) continue;
      findings.push_back({"call " + b_[i].path, "absent", place_of(b_, i)});
    }
    add_moved(findings, both, order);
  }

 private:
  void add_moved(std::vector<trace::Finding>& findings, const std::vector<trace::Index>& both,
                 const std::vector<trace::Index>& order) const {
    const std::vector<trace::Index> kept = longest_increasing(order);
    for (trace::Index i = 0; i < both.size(); ++i) {
      if (std::ranges::binary_search(kept, i)) continue;
      findings.push_back(
          {"call " + a_[both[i]].path, place_of(a_, both[i]), place_of(b_, order[i])});
    }
  }

  static std::string place_of(const std::vector<Call>& calls, trace::Index position) {
    return position == 0 ? "the first" : "after " + calls[position - 1].path;
  }

  std::vector<Call> a_, b_;
  std::map<std::pair<std::string, std::size_t>, trace::Index> at_a_, at_b_;
  std::unordered_set<std::string> in_a_, in_b_;
};

}  // namespace

std::vector<trace::Finding> module_differences(const trace::Recording& a,
                                               const trace::Recording& b) {
  std::vector<trace::Finding> findings = differences(modules_of(a), modules_of(b));
  CallComparison(a, b).add_to(findings);
  return findings;
}

}  // namespace steptape::diff
