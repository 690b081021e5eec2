#include "diff/numerics/partings.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "diff/numerics/numeric_words.h"
#include "trace/operators.h"

namespace steptape::diff {
namespace {

bool is_collective(const trace::Recording& recording, trace::Index op) {
  const std::string& name = recording.operator_of(recording.ops[op]).name;
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::");
}

class PartingFinder {
 public:
  PartingFinder(const trace::Recording& recording, const NumericDifferences& found,
                const Shared& shared)
      : recording_(recording), found_(found), shared_(shared) {
    for (const NumericOp& op : found.ops) differing_.emplace(op.a, &op);
  }

  std::optional<Parting> find() {
    Parting out;
    for (const EnteredBuffer& buffer : found_.entered) {
      const trace::Buffer& entered = recording_.buffers[buffer.a];
      if (shared_.has(entered.role)) out.paths.push_back(entered.path);
    }
    if (!out.paths.empty()) {
      out.is_at_entry = true;
      return out;
    }
    const auto left = left_differing();
    const auto first = std::ranges::min_element(
        left, {}, [](const auto& buffer_and_op) { return buffer_and_op.second->a; });
    if (first == left.end()) return std::nullopt;
    go_back_from(*first->second, out);
    name_written(left, *first->second, out);
    return out;
  }

 private:
  using LeftDiffering = std::map<trace::BufferId, const NumericOp*>;

  /// By buffer that is shared: the op from which on it differs to the end of the step.
  LeftDiffering left_differing() const {
    LeftDiffering left;
    const std::vector<trace::OpUse> uses = trace::uses_of(recording_);
    for (trace::Index op = 0; op < uses.size(); ++op) {
      const auto known = differing_.find(op);
      for (const trace::TensorId id : uses[op].writes) {
        const trace::Tensor& tensor = recording_.tensors[id];
        const trace::Buffer& buffer = recording_.buffers[tensor.buffer];
        if (!shared_.has(buffer.role)) continue;
        if (known != differing_.end()) {
          left.try_emplace(tensor.buffer, known->second);
        } else if (tensor.byte_range() ==
                   std::pair<std::uint64_t, std::uint64_t>(0, buffer.bytes)) {
          left.erase(tensor.buffer);
        }
      }
    }
    return left;
  }

  void go_back_from(const NumericOp& from, Parting& out) const {
    for (const NumericOp* op = &from; op != nullptr;) {
      out.way.push_back(*op);
      out.ends_at_collective = is_collective(recording_, op->a);
      const bool goes_on = !out.ends_at_collective && op->input.kind == InputKind::kTensor &&
                           op->input.a.op != trace::kNone && op->input.a.op < op->a;
      const auto next = goes_on ? differing_.find(op->input.a.op) : differing_.end();
      op = next == differing_.end() ? nullptr : next->second;
    }
  }

  /// An op that writes the items of a list differs as a whole: where an item that it takes is the
  /// first to differ, it is that one of those that it writes.
  void name_written(const LeftDiffering& left, const NumericOp& op, Parting& out) const {
    std::vector<std::pair<trace::Index, std::string>> left_by;
    for (const auto& [buffer, writer] : left) {
      left_by.emplace_back(writer->a, recording_.buffers[buffer].path);
    }
    std::ranges::sort(left_by);
    std::vector<std::string>& all = out.paths;
    for (auto& [writer, path] : left_by) all.push_back(std::move(path));
    const trace::Op& written = recording_.ops[op.a];
    const auto* list =
        written.inputs.empty() ? nullptr : std::get_if<trace::List>(&written.inputs.front().data);
    const trace::Index item = op.input.kind == InputKind::kTensor ? op.input.item : trace::kNone;
    if (list != nullptr && item < list->size()) {
      if (const trace::Tensor* tensor = recording_.find_tensor((*list)[item])) {
        const auto named = std::ranges::find(all, recording_.buffers[tensor->buffer].path);
        if (named != all.end()) std::rotate(all.begin(), named, named + 1);
      }
    }
  }

  const trace::Recording& recording_;
  const NumericDifferences& found_;
  const Shared& shared_;
  std::unordered_map<trace::Index, const NumericOp*> differing_;  ///< by op of `a`
};

}  // namespace

bool Shared::has(trace::Role role) const noexcept {
  switch (role) {
    case trace::Role::kParameter:
      return parameters;
    case trace::Role::kOptimizerState:
      return state;
    case trace::Role::kModuleBuffer:
      return buffers;
    default:
      return false;
  }
}

std::optional<Parting> find_parting(const trace::Recording& a, const NumericDifferences& found,
                                    const Shared& shared) {
  return PartingFinder(a, found, shared).find();
}

std::string Parting::entry(const OpStream& a, const OpStream& b) const {
  if (way.empty() || ends_at_collective) return {};
  const NumericOp& last = way.back();
  const bool is_entered = last.input.kind == InputKind::kTensor && last.input.a.op == trace::kNone;
  return is_entered ? words_of_input(last, a, b).a : "";
}

}  // namespace steptape::diff
