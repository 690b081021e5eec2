#include "diff/stream_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "trace/named.h"
#include "trace/operators.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

constexpr std::array kKinds = {
    trace::Named{EditKind::kRemove, "remove"},
    trace::Named{EditKind::kInsert, "insert"},
    trace::Named{EditKind::kMove, "move"},
    trace::Named{EditKind::kChange, "change"},
};

/// Walks both streams at once, so that edits come in the order of the step.
class Walk {
 public:
  Walk(StreamDiff& out, const OpStream& a, const OpStream& b)
      : out_(out),
        a_(a),
        b_(b),
        pair_of_a_(a.recording().ops.size(), nullptr),
        pair_of_b_(b.recording().ops.size(), nullptr) {
    for (const OpPair& pair : out.alignment.pairs) {
      pair_of_a_[pair.a] = &pair;
      pair_of_b_[pair.b] = &pair;
    }
  }

  void run() {
    for (const OpPair& pair : out_.alignment.pairs) {
      if (pair.is_moved) continue;
      put_until(pair.a, pair.b);
      put_change(pair);
      ++next_a_;
      ++next_b_;
    }
    put_until(static_cast<trace::Index>(pair_of_a_.size()),
              static_cast<trace::Index>(pair_of_b_.size()));
  }

 private:
  /// What lies before the next pair that stays: removed and inserted ops, and moved ones where
  /// they arrive.
  void put_until(trace::Index end_a, trace::Index end_b) {
    for (; next_a_ < end_a; ++next_a_) {
      if (pair_of_a_[next_a_] == nullptr) put(EditKind::kRemove, next_a_, trace::kNone);
    }
    for (; next_b_ < end_b; ++next_b_) {
      const OpPair* pair = pair_of_b_[next_b_];
      if (pair == nullptr) {
        put(EditKind::kInsert, trace::kNone, next_b_);
        continue;
      }
      put(EditKind::kMove, pair->a, pair->b).matched_by = pair->matched_by;
      put_change(*pair);
    }
  }

  Edit& put(EditKind kind, trace::Index a, trace::Index b) {
    Edit& edit = out_.edits.emplace_back();
    edit.kind = kind;
    edit.a = a;
    edit.b = b;
    return edit;
  }

  void put_change(const OpPair& pair) {
    auto changes = changes_of(a_, pair.a, b_, pair.b, out_.alignment.buffers);
    if (changes.empty()) return;
    Edit& edit = put(EditKind::kChange, pair.a, pair.b);
    edit.matched_by = pair.matched_by;
    edit.changes = std::move(changes);
  }

  StreamDiff& out_;
  const OpStream& a_;
  const OpStream& b_;
  std::vector<const OpPair*> pair_of_a_, pair_of_b_;
  trace::Index next_a_ = 0;
  trace::Index next_b_ = 0;
};

class Stats {
 public:
  ModuleStat& of(const OpStream& stream, trace::Index op) {
    const trace::Recording& recording = stream.recording();
    const std::string path = recording.module_path(recording.ops[op].module);
    const auto [found, is_new] = positions_.try_emplace(path, stats_.size());
    if (is_new) stats_.push_back({.module = path});
    return stats_[found->second];
  }
  std::vector<ModuleStat> take() { return std::move(stats_); }

 private:
  std::vector<ModuleStat> stats_;
  std::unordered_map<std::string, std::size_t> positions_;
};

}  // namespace

std::string_view name_of(EditKind kind) noexcept { return find_name(kKinds, kind); }

StreamDiff compare(const OpStream& a, const OpStream& b) {
  StreamDiff out;
  out.alignment = align(a, b);
  Walk(out, a, b).run();
  return out;
}

std::vector<ModuleStat> stats_of(const StreamDiff& diff, const OpStream& a, const OpStream& b) {
  Stats stats;
  for (trace::Index op = 0; op < a.recording().ops.size(); ++op) ++stats.of(a, op).ops_a;
  for (trace::Index op = 0; op < b.recording().ops.size(); ++op) ++stats.of(b, op).ops_b;
  for (const Edit& edit : diff.edits) {
    ModuleStat& stat = edit.a == trace::kNone ? stats.of(b, edit.b) : stats.of(a, edit.a);
    switch (edit.kind) {
      case EditKind::kRemove:
        ++stat.removed;
        break;
      case EditKind::kInsert:
        ++stat.inserted;
        break;
      case EditKind::kMove:
        ++stat.moved;
        break;
      case EditKind::kChange:
        ++stat.changed;
        break;
    }
  }
  return stats.take();
}

namespace {

constexpr std::array kAspects = {
    trace::Named{OpAspect::kOperator, "operator"}, trace::Named{OpAspect::kModule, "module"},
    trace::Named{OpAspect::kArgument, "argument"}, trace::Named{OpAspect::kDtype, "dtype"},
    trace::Named{OpAspect::kDevice, "device"},     trace::Named{OpAspect::kShape, "shape"},
    trace::Named{OpAspect::kLayout, "layout"},     trace::Named{OpAspect::kScalar, "scalar"},
    trace::Named{OpAspect::kWrites, "writes"},
};

std::string list_of(const std::vector<std::int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string layout_of(const trace::Tensor& tensor) {
  return "strides " + list_of(tensor.strides) + words_of_view(tensor);
}

class OpComparison {
 public:
  OpComparison(const OpStream& a, trace::Index x, const OpStream& b, trace::Index y,
               const BufferPairs& buffers)
      : a_(a),
        x_(x),
        b_(b),
        y_(y),
        op_a_(a.recording().ops[x]),
        op_b_(b.recording().ops[y]),
        buffers_(buffers) {}

  std::vector<OpChange> take() {
    const trace::Operator& operator_a = a_.recording().operator_of(op_a_);
    const trace::Operator& operator_b = b_.recording().operator_of(op_b_);
    differ(OpAspect::kOperator, "", operator_a.full_name(), operator_b.full_name());
    differ(OpAspect::kModule, "", place_of(a_, op_a_), place_of(b_, op_b_));
    const auto names_a = trace::arguments_of(operator_a.schema);
    const auto names_b = trace::arguments_of(operator_b.schema);
    const std::size_t most = std::max(op_a_.inputs.size(), op_b_.inputs.size());
    for (trace::Index i = 0; i < most; ++i) {
      argument_ = i;
      const auto& names = i < op_a_.inputs.size() ? names_a : names_b;
      compare(trace::argument_name(names, i), i < op_a_.inputs.size() ? &op_a_.inputs[i] : nullptr,
              i < op_b_.inputs.size() ? &op_b_.inputs[i] : nullptr);
    }
    compare_results();
    compare_writes();
    return std::move(changes_);
  }

 private:
  static std::string place_of(const OpStream& stream, const trace::Op& op) {
    const std::string call = stream.call_of(op);
    return fmt::format("{}, {}", call.empty() ? "no module" : call,
                       op.phase == trace::Phase::kForward ? "forward" : "backward");
  }

  void differ(OpAspect aspect, const std::string& place, std::string expected, std::string found) {
    if (expected != found) {
      changes_.push_back({aspect, place, std::move(expected), std::move(found)});
    }
  }

  std::string words(const OpStream& stream, trace::Index op, const trace::Value* value) const {
    return value == nullptr ? "absent" : stream.words_of(op, argument_, item_, *value);
  }

  void compare(const std::string& place, const trace::Value* x, const trace::Value* y) {
    const auto* tensor_x = x == nullptr ? nullptr : std::get_if<trace::TensorRef>(&x->data);
    const auto* tensor_y = y == nullptr ? nullptr : std::get_if<trace::TensorRef>(&y->data);
    if (tensor_x != nullptr && tensor_y != nullptr && tensor_x->id != trace::kNoTensor &&
        tensor_y->id != trace::kNoTensor) {
      return compare_tensors(place, tensor_x->id, tensor_y->id);
    }
    const auto* list_x = x == nullptr ? nullptr : std::get_if<trace::List>(&x->data);
    const auto* list_y = y == nullptr ? nullptr : std::get_if<trace::List>(&y->data);
    if (list_x != nullptr && list_y != nullptr && item_ == trace::kNone) {
      return compare_lists(place, *list_x, *list_y);
    }
    const bool is_argument = x == nullptr || y == nullptr || holds_tensor(*x) || holds_tensor(*y);
    differ(is_argument ? OpAspect::kArgument : OpAspect::kScalar, place, words(a_, x_, x),
           words(b_, y_, y));
  }

  void compare_lists(const std::string& place, const trace::List& x, const trace::List& y) {
    const std::size_t both = std::min(x.size(), y.size());
    for (item_ = 0; item_ < both; ++item_) {
      compare(fmt::format("{}[{}]", place, item_), &x[item_], &y[item_]);
    }
    item_ = trace::kNone;
    differ(OpAspect::kArgument, place + ".size", std::to_string(x.size()),
           std::to_string(y.size()));
  }

  void compare_tensors(const std::string& place, trace::TensorId id_x, trace::TensorId id_y) {
    const trace::Tensor& x = a_.recording().tensors[id_x];
    const trace::Tensor& y = b_.recording().tensors[id_y];
    compare_buffers(place, x, y);
    differ(OpAspect::kDtype, place, std::string(name_of(x.dtype)), std::string(name_of(y.dtype)));
    differ(OpAspect::kDevice, place, text_of(a_.recording().buffers[x.buffer].device),
           text_of(b_.recording().buffers[y.buffer].device));
    differ(OpAspect::kShape, place, list_of(x.sizes), list_of(y.sizes));
    // other sizes bring other strides
    const bool is_told_by_shape = x.sizes != y.sizes && x.is_contiguous() && y.is_contiguous();
    if (!is_told_by_shape) differ(OpAspect::kLayout, place, layout_of(x), layout_of(y));
  }

  bool is_same_buffer(trace::BufferId x, trace::BufferId y) const {
    const bool is_named = a_.is_named(x);
    if (is_named != b_.is_named(y)) return false;
    return is_named ? a_.recording().buffers[x].path == b_.recording().buffers[y].path
                    : buffers_.partner_of_a(x) == y;
  }

  void compare_buffers(const std::string& place, const trace::Tensor& x, const trace::Tensor& y) {
    if (!is_same_buffer(x.buffer, y.buffer)) {
      changes_.push_back(
          {OpAspect::kArgument, place, a_.origin_of(x.buffer, x_), b_.origin_of(y.buffer, y_)});
    } else if (!a_.is_named(x.buffer)) {
      differ(OpAspect::kScalar, place, a_.number_of(x), b_.number_of(y));
    }
  }

  void compare_results() {
    const std::size_t most = std::max(op_a_.outputs.size(), op_b_.outputs.size());
    argument_ = trace::kNone;
    for (trace::Index i = 0; i < most; ++i) {
      const trace::Value* x = i < op_a_.outputs.size() ? &op_a_.outputs[i] : nullptr;
      const trace::Value* y = i < op_b_.outputs.size() ? &op_b_.outputs[i] : nullptr;
      // what an op gives the host is a value of this run
      if (x != nullptr && y != nullptr && is_number(*x) && is_number(*y)) continue;
      compare(most == 1 ? "result" : fmt::format("results[{}]", i), x, y);
    }
  }

  void compare_writes() {
    const auto same_memory = [this](trace::TensorId x, trace::TensorId y) {
      return is_same_buffer(a_.recording().tensors[x].buffer, b_.recording().tensors[y].buffer);
    };
    const bool is_other_memory =
        !std::ranges::equal(op_a_.unannotated_writes, op_b_.unannotated_writes, same_memory);
    const auto words_of = [is_other_memory](const OpStream& stream, trace::Index op,
                                            trace::TensorId id) {
      return is_other_memory ? stream.origin_of(stream.recording().tensors[id].buffer, op)
                             : stream.words_of(id);
    };
    std::string before = writes_of(a_, x_, words_of);
    std::string now = writes_of(b_, y_, words_of);
    if (!is_other_memory && before == now) return;
    changes_.push_back({OpAspect::kWrites, "writes", std::move(before), std::move(now)});
  }

  template <typename Words>
  static std::string writes_of(const OpStream& stream, trace::Index op, const Words& words_of) {
    std::string text;
    for (const trace::TensorId id : stream.recording().ops[op].unannotated_writes) {
      text += (text.empty() ? "" : ", ") + words_of(stream, op, id);
    }
    return text.empty() ? "nothing else" : text;
  }

  const OpStream& a_;
  trace::Index x_;
  const OpStream& b_;
  trace::Index y_;
  const trace::Op& op_a_;
  const trace::Op& op_b_;
  const BufferPairs& buffers_;
  trace::Index argument_ = trace::kNone;
  trace::Index item_ = trace::kNone;
  std::vector<OpChange> changes_;
};

}  // namespace

std::string_view name_of(OpAspect aspect) noexcept { return find_name(kAspects, aspect); }

std::string OpChange::text() const {
  return fmt::format("{}{}{} → {}", place, place.empty() ? "" : ": ", expected, found);
}

std::vector<OpChange> changes_of(const OpStream& a, trace::Index x, const OpStream& b,
                                 trace::Index y, const BufferPairs& buffers) {
  return OpComparison(a, x, b, y, buffers).take();
}

}  // namespace steptape::diff
