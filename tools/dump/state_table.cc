#include "tools/dump/state_table.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace steptape::tools {
namespace {

using Entries = std::vector<const trace::OptimizerStateEntry*>;

class Table {
 public:
  Table(const trace::Recording& recording, const trace::OptimizerLayout& optimizer) {
    for (const trace::Tracked& tracked : recording.tracked) {
      tracked_.try_emplace(tracked.path, &tracked);
    }
    std::unordered_set<std::string> known;
    for (const trace::OptimizerStateEntry& entry : optimizer.state) {
      if (known.insert(entry.key).second) keys_.push_back(entry.key);
      entries_[entry.parameter].push_back(&entry);
    }
  }

  ParameterState row(const std::string& path, trace::Index group) {
    ParameterState row;
    row.path = path;
    row.group = group;
    if (const auto tracked = tracked_.find(path); tracked != tracked_.end()) {
      row.is_tracked = true;
      row.tensor = tracked->second->tensor;
    }
    const auto entries = entries_.find(path);
    if (entries == entries_.end()) return row;
    row.has_state = true;
    for (const std::string& key : keys_) {
      const auto entry = std::ranges::find(entries->second, key, &trace::OptimizerStateEntry::key);
      row.items.push_back({key, entry == entries->second.end() ? nullptr : &(*entry)->value});
    }
    return row;
  }

 private:
  std::unordered_map<std::string, const trace::Tracked*> tracked_;
  std::vector<std::string> keys_;  ///< of the state, in the order in which they are met
  std::unordered_map<std::string, Entries> entries_;
};

}  // namespace

std::vector<ParameterState> states_of(const trace::Recording& recording,
                                      const trace::OptimizerLayout& optimizer) {
  Table table(recording, optimizer);
  std::vector<ParameterState> rows;
  std::unordered_set<std::string> listed;
  for (trace::Index g = 0; g < optimizer.groups.size(); ++g) {
    for (const std::string& parameter : optimizer.groups[g].parameters) {
      rows.push_back(table.row(parameter, g));
      listed.insert(parameter);
    }
  }
  for (const trace::OptimizerStateEntry& entry : optimizer.state) {
    if (!listed.insert(entry.parameter).second) continue;
    rows.push_back(table.row(entry.parameter, trace::kNone));
  }
  return rows;
}

}  // namespace steptape::tools
