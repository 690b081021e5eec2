#include <algorithm>

#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/dump/dumps.h"
#include "tools/dump/module_tree.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

/// Wide enough for the words before the details of a module.
constexpr int kWord = 8;

std::string head(std::string_view word) { return fmt::format("{:<{}}", word, kWord); }

std::string words_of(const OpCount& ops) {
  return fmt::format("{} forward, {} backward", ops.forward, ops.backward);
}

std::vector<std::string> shown_all(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back(shown(name));
  return all;
}

/// Draws the tree: what stands before the lines of a node grows with its depth.
class Tree {
 public:
  explicit Tree(const trace::Recording& recording) : nodes_(module_tree(recording)), out_("") {}

  std::string draw() {
    constexpr const char* kIndent = "    ";
    for (const ModuleNode& node : nodes_) {
      if (node.parent == trace::kNone) put(node, kIndent, "", "");
    }
    return out_.take();
  }

 private:
  /// `before` stands before all lines of the node, then `branch` before its first and `trunk`
  /// before the others.
  void put(const ModuleNode& node, const std::string& before, const char* branch,
           const char* trunk) {
    const trace::Module& module = *node.module;
    const std::string_view parent = node.parent == trace::kNone
                                        ? std::string_view()
                                        : std::string_view(nodes_[node.parent].module->path);
    const std::string name = parent.empty() ? module.path : module.path.substr(parent.size() + 1);
    out_.set_indent(before + branch);
    out_.line("{}  {}, {}", toned(Tone::kHeading, shown(name)), shown(module.type),
              module.training ? "training" : "evaluating");
    const std::string inner = before + trunk;
    out_.set_indent(inner + (node.children.empty() ? "   " : "│  "));
    put_details(node);
    for (const trace::Index child : node.children) {
      const bool is_last = child == node.children.back();
      put(nodes_[child], inner, is_last ? "└─ " : "├─ ", is_last ? "   " : "│  ");
    }
  }

  void put_details(const ModuleNode& node) {
    const trace::Module& module = *node.module;
    if (!module.aliases.empty()) out_.list(head("also"), shown_all(module.aliases));
    if (!module.options.empty()) {
      std::vector<std::string> options;
      for (const trace::NamedValue& option : module.options) {
        options.push_back(shown(option.name) + "=" + shown(trace::words_of(option.value)));
      }
      out_.list(head("options"), options);
    }
    put_calls(node);
    if (!node.reads.empty()) out_.list(head("reads"), shown_all(node.reads));
    if (!node.writes.empty()) out_.list(head("writes"), shown_all(node.writes));
  }

  void put_calls(const ModuleNode& node) {
    const auto [forward, backward] = node.ops_below;
    if (forward + backward == 0) return out_.line("{}none", head("ops"));
    const bool has_below = forward != node.ops.forward || backward != node.ops.backward;
    out_.line("{}{}{}", head("ops"), words_of(node.ops),
              has_below ? "; with the modules below " + words_of(node.ops_below) : "");
    if (node.calls.size() == 1) {
      const ModuleCall& call = node.calls.front();
      return out_.line("{}1, #{} from op {}", head("calls"), call.order, call.first_op);
    }
    if (node.calls.empty()) return;
    out_.line("{}{}", head("calls"), node.calls.size());
    for (const ModuleCall& call : node.calls) {
      out_.line("  #{} {} from op {}: {}", call.order,
                shown(trace::call_path(node.module->path, call.call)), call.first_op,
                words_of(call.ops));
    }
  }

  std::vector<ModuleNode> nodes_;
  Lines out_;
};

Json ops_json(const OpCount& ops) { return {{"forward", ops.forward}, {"backward", ops.backward}}; }

Json node_json(const ModuleNode& node) {
  const trace::Module& module = *node.module;
  const auto call_json = [&module](const ModuleCall& call) {
    return Json{{"path", trace::call_path(module.path, call.call)},
                {"order", call.order},
                {"first_op", call.first_op},
                {"ops", ops_json(call.ops)}};
  };
  return {{"path", module.path},         {"type", module.type},
          {"training", module.training}, {"options", by_name(module.options, trace::words_of)},
          {"aliases", module.aliases},   {"calls", each(node.calls, call_json)},
          {"ops", ops_json(node.ops)},   {"ops_below", ops_json(node.ops_below)},
          {"reads", node.reads},         {"writes", node.writes}};
}

}  // namespace

std::string ModulesView::text(const trace::Step& step, std::size_t position) const {
  const trace::Recording& recording = step.recordings[position];
  return recording.modules.empty() ? "    no module\n" : Tree(recording).draw();
}

Json ModulesView::json(const trace::Step& step, std::size_t position) const {
  return {{"modules", each(module_tree(step.recordings[position]), node_json)}};
}

}  // namespace steptape::tools
