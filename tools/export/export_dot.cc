#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "diff/op_stream.h"
#include "tools/cli/output.h"
#include "tools/dump/module_tree.h"
#include "tools/dump/summary.h"
#include "tools/export/exports.h"
#include "trace/operators.h"

namespace steptape::tools {
namespace {

/// A string of the DOT language that shows `name` and nothing else.
std::string dot_string(std::string_view name) {
  std::string text = "\"";
  for (const char c : shown(name)) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

std::string_view colour_of(StepPart part) {
  switch (part) {
    case StepPart::kForward:
      return "#cfe3fa";
    case StepPart::kBackward:
      return "#ead8f5";
    case StepPart::kUpdate:
      return "#d2efdf";
  }
  return "white";
}

class Graph {
 public:
  explicit Graph(const ChosenRecording& chosen)
      : chosen_(chosen),
        recording_(chosen.recording()),
        stream_(recording_),
        parts_(parts_of(recording_)),
        modules_(module_tree(recording_)),
        ops_of_(modules_.size()) {
    for (trace::Index i = 0; i < recording_.ops.size(); ++i) {
      const trace::Index module = recording_.ops[i].module;
      (module == trace::kNone ? ops_of_none_ : ops_of_[module]).push_back(i);
    }
  }

  std::string draw() {
    out_ = fmt::format(
        "digraph {} {{\n  node [shape=box, style=filled];\n",
        dot_string(fmt::format("{}, recording {}", chosen_.step->name, chosen_.position)));
    put_ops(ops_of_none_);
    put_modules();
    put_edges();
    return out_ + "}\n";
  }

 private:
  /// A box for each module that ops are in or below, in the box of the one that holds it.
  void put_modules() {
    std::vector<trace::Index> left;  // the last is the next; kNone ends the box that is open
    for (std::size_t i = modules_.size(); i-- > 0;) {
      if (modules_[i].parent == trace::kNone) left.push_back(static_cast<trace::Index>(i));
    }
    while (!left.empty()) {
      const trace::Index module = left.back();
      left.pop_back();
      if (module == trace::kNone) {
        out_ += "  }\n";
      } else if (has_ops(modules_[module])) {
        out_ += fmt::format("  subgraph cluster_{} {{\n  label={};\n", module,
                            dot_string(recording_.modules[module].path));
        put_ops(ops_of_[module]);
        left.push_back(trace::kNone);
        const std::vector<trace::Index>& children = modules_[module].children;
        left.insert(left.end(), children.rbegin(), children.rend());
      }
    }
  }

  static bool has_ops(const ModuleNode& module) {
    return module.ops_below.forward + module.ops_below.backward > 0;
  }

  void put_ops(const std::vector<trace::Index>& ops) {
    for (const trace::Index op : ops) {
      const std::string name = recording_.operator_of(recording_.ops[op]).full_name();
      out_ += fmt::format("  op{} [label={}, fillcolor=\"{}\", tooltip={}];\n", op,
                          dot_string(fmt::format("{} {}", op, name)), colour_of(parts_[op]),
                          dot_string(stream_.op(op).text));
    }
  }

  void put_edges() {
    const std::vector<trace::OpUse> uses = trace::uses_of(recording_);
    for (trace::Index i = 0; i < recording_.ops.size(); ++i) {
      for (const trace::TensorId id : uses[i].reads) put_edge(id, i);
      const auto note = [&](trace::TensorId id) {
        if (id != trace::kNoTensor) writers_[recording_.tensors[id].buffer] = i;
      };
      for (const trace::TensorId id : uses[i].writes) note(id);
      for (const trace::Value& value : recording_.ops[i].outputs) for_each_tensor(value, note);
    }
  }

  void put_edge(trace::TensorId id, trace::Index reader) {
    if (id == trace::kNoTensor) return;
    const trace::BufferId buffer = recording_.tensors[id].buffer;
    const auto writer = writers_.find(buffer);
    if (writer == writers_.end()) put_buffer(buffer);
    const std::string from = writer == writers_.end() ? fmt::format("buffer{}", buffer)
                                                      : fmt::format("op{}", writer->second);
    out_ +=
        fmt::format("  {} -> op{} [label={}];\n", from, reader, dot_string(stream_.words_of(id)));
  }

  void put_buffer(trace::BufferId id) {
    if (!drawn_.insert(id).second) return;
    const trace::Buffer& buffer = recording_.buffers[id];
    out_ += fmt::format(
        "  buffer{} [label={}, shape=ellipse, fillcolor=white];\n", id,
        dot_string(buffer.path.empty() ? std::string(name_of(buffer.role)) : buffer.path));
  }

  const ChosenRecording& chosen_;
  const trace::Recording& recording_;
  diff::OpStream stream_;
  std::vector<StepPart> parts_;
  std::vector<ModuleNode> modules_;
  std::vector<std::vector<trace::Index>> ops_of_;              ///< by module, as modules_
  std::vector<trace::Index> ops_of_none_;                      ///< whose module is unknown
  std::unordered_map<trace::BufferId, trace::Index> writers_;  ///< the last op so far
  std::unordered_set<trace::BufferId> drawn_;
  std::string out_;
};

}  // namespace

std::string export_dot(const ChosenRecording& chosen) { return Graph(chosen).draw(); }

}  // namespace steptape::tools
