#include "tools/dump/module_tree.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "trace/operators.h"
#include "trace/path.h"

namespace steptape::tools {
namespace {

void count(OpCount& ops, const trace::Op& op) {
  ++(op.phase == trace::Phase::kForward ? ops.forward : ops.backward);
}

void find_parents(std::vector<ModuleNode>& nodes) {
  std::unordered_map<std::string, trace::Index> by_path;
  for (trace::Index i = 0; i < nodes.size(); ++i) by_path.try_emplace(nodes[i].module->path, i);
  for (trace::Index i = 0; i < nodes.size(); ++i) {
    const auto parent = by_path.find(std::string(trace::parent_path(nodes[i].module->path)));
    if (parent == by_path.end() || parent->second == i) continue;
    nodes[i].parent = parent->second;
    nodes[parent->second].children.push_back(i);
  }
}

void find_calls(std::vector<ModuleNode>& nodes, const trace::Recording& recording) {
  std::vector<trace::ModuleAccess> accesses = recording.module_access;
  std::ranges::stable_sort(accesses, {}, &trace::ModuleAccess::first_op);
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const trace::ModuleAccess& access = accesses[i];
    nodes[access.module].calls.push_back({access.call, i + 1, access.first_op, {}});
  }
}

class Uses {
 public:
  Uses(std::vector<ModuleNode>& nodes, const trace::Recording& recording)
      : nodes_(nodes), recording_(recording), read_(nodes.size()), written_(nodes.size()) {
    for (trace::Index i = 0; i < nodes.size(); ++i) {
      for (ModuleCall& call : nodes[i].calls) calls_.try_emplace({i, call.call}, &call);
    }
  }

  void add_all() {
    const std::vector<trace::OpUse> uses = trace::uses_of(recording_);
    for (std::size_t i = 0; i < recording_.ops.size(); ++i) {
      const trace::Op& op = recording_.ops[i];
      if (op.module == trace::kNone) continue;
      ModuleNode& node = nodes_[op.module];
      count(node.ops, op);
      const auto call = calls_.find({op.module, op.call});
      if (call != calls_.end()) count(call->second->ops, op);
      for (const trace::TensorId id : uses[i].reads) add(node.reads, read_[op.module], node, id);
      for (const trace::TensorId id : uses[i].writes) {
        add(node.writes, written_[op.module], node, id);
      }
    }
  }

 private:
  void add(std::vector<std::string>& paths, std::set<trace::BufferId>& known,
           const ModuleNode& node, trace::TensorId id) const {
    const trace::BufferId at = recording_.tensors[id].buffer;
    const trace::Buffer& buffer = recording_.buffers[at];
    const bool is_of_module =
        buffer.role == trace::Role::kParameter || buffer.role == trace::Role::kModuleBuffer;
    if (!is_of_module || !known.insert(at).second) return;
    const std::string below = node.module->path + ".";
    paths.push_back(buffer.path.starts_with(below) ? buffer.path.substr(below.size())
                                                   : buffer.path);
  }

  std::vector<ModuleNode>& nodes_;
  const trace::Recording& recording_;
  std::map<std::pair<trace::Index, std::uint32_t>, ModuleCall*> calls_;
  std::vector<std::set<trace::BufferId>> read_, written_;
};

/// Adds what lies below a module to it. A path is longer than its parent's, so that longer ones go
/// first.
void sum_up(std::vector<ModuleNode>& nodes) {
  std::vector<trace::Index> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](trace::Index i) { return nodes[i].module->path.size(); });
  for (const trace::Index i : order) {
    ModuleNode& node = nodes[i];
    node.ops_below.forward += node.ops.forward;
    node.ops_below.backward += node.ops.backward;
    if (node.parent == trace::kNone) continue;
    nodes[node.parent].ops_below.forward += node.ops_below.forward;
    nodes[node.parent].ops_below.backward += node.ops_below.backward;
  }
}

}  // namespace

std::vector<ModuleNode> module_tree(const trace::Recording& recording) {
  std::vector<ModuleNode> nodes(recording.modules.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].module = &recording.modules[i];
  find_parents(nodes);
  find_calls(nodes, recording);
  Uses(nodes, recording).add_all();
  sum_up(nodes);
  return nodes;
}

}  // namespace steptape::tools
