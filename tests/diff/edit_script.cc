#include "tests/diff/edit_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "diff/align/op_keys.h"
#include "steptape/error.h"

namespace steptape::diff {
namespace {

void sort(EditScript& script) {
  std::ranges::sort(script.edits, {}, [](const ScriptEdit& edit) {
    return std::tuple(edit.kind, edit.kind == EditKind::kRemove ? edit.a : edit.b);
  });
  std::ranges::sort(script.buffers);
}

[[noreturn]] void does_not_fit(const ScriptEdit& edit) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the edit script was made for another stream: to {} op {} does not fit",
                          name_of(edit.kind), edit.a == trace::kNone ? edit.b : edit.a));
}

class Application {
 public:
  Application(const EditScript& script, const std::vector<StreamOp>& stream)
      : script_(script), stream_(stream), stays_(stream.size(), true) {
    b_of_a_.insert(script.buffers.begin(), script.buffers.end());
  }

  std::vector<StreamOp> take() {
    std::size_t size = stream_.size();
    for (const ScriptEdit& edit : script_.edits) {
      if (edit.kind != EditKind::kInsert) check(edit);
      size += edit.kind == EditKind::kInsert ? 1 : 0;
      size -= edit.kind == EditKind::kRemove ? 1 : 0;
    }
    std::vector<std::optional<StreamOp>> out(size);
    for (const ScriptEdit& edit : script_.edits) {
      if (edit.kind == EditKind::kRemove || edit.kind == EditKind::kMove) stays_[edit.a] = false;
      if (edit.kind == EditKind::kRemove) continue;
      if (edit.b >= size) does_not_fit(edit);
      if (edit.kind == EditKind::kInsert) out[edit.b] = edit.after;
      if (edit.kind == EditKind::kMove) out[edit.b] = translated(stream_[edit.a]);
    }
    fill(out);
    std::vector<StreamOp> result;
    for (std::optional<StreamOp>& op : out) result.push_back(*std::move(op));
    for (const ScriptEdit& edit : script_.edits) {
      if (edit.kind == EditKind::kChange) result[edit.b] = edit.after;
    }
    return result;
  }

 private:
  void check(const ScriptEdit& edit) const {
    if (edit.a >= stream_.size()) does_not_fit(edit);
    if (edit.kind != EditKind::kMove && stream_[edit.a] != edit.before) does_not_fit(edit);
  }

  /// What stays takes the places that are left, in its order.
  void fill(std::vector<std::optional<StreamOp>>& out) const {
    std::size_t from = 0;
    for (std::optional<StreamOp>& op : out) {
      if (op) continue;
      while (from < stream_.size() && !stays_[from]) ++from;
      if (from == stream_.size()) {
        throw Error(ErrorCode::kInvalidArgument, "the edit script was made for a longer stream");
      }
      op = translated(stream_[from++]);
    }
  }

  StreamOp translated(StreamOp op) const {
    for (trace::BufferId& buffer : op.buffers) {
      const auto found = b_of_a_.find(buffer);
      // one that the second stream lacks is only in ops that go or change
      buffer = found == b_of_a_.end() ? trace::kNone : found->second;
    }
    return op;
  }

  const EditScript& script_;
  const std::vector<StreamOp>& stream_;
  std::vector<bool> stays_;
  std::unordered_map<trace::BufferId, trace::BufferId> b_of_a_;
};

}  // namespace

std::vector<StreamOp> ops_of(const OpStream& stream) {
  std::vector<StreamOp> all;
  for (trace::Index i = 0; i < stream.recording().ops.size(); ++i) all.push_back(stream.op(i));
  return all;
}

bool same_stream(const std::vector<StreamOp>& a, const std::vector<StreamOp>& b) {
  BufferPairs pairs;
  return std::ranges::equal(a, b, [&](const StreamOp& x, const StreamOp& y) {
    return x.call == y.call && x.phase == y.phase && x.text == y.text &&
           std::ranges::equal(x.buffers, y.buffers, [&](trace::BufferId p, trace::BufferId q) {
             return pairs.join(p, q);
           });
  });
}

EditScript script_of(const StreamDiff& diff, const OpStream& a, const OpStream& b) {
  EditScript script;
  for (const Edit& edit : diff.edits) {
    ScriptEdit& out = script.edits.emplace_back();
    out.kind = edit.kind;
    out.a = edit.a;
    out.b = edit.b;
    const bool is_change = edit.kind == EditKind::kChange;
    if (is_change || edit.kind == EditKind::kRemove) out.before = a.op(edit.a);
    if (is_change || edit.kind == EditKind::kInsert) out.after = b.op(edit.b);
  }
  script.buffers = diff.alignment.buffers.all();
  sort(script);
  return script;
}

EditScript inverse(EditScript script) {
  for (ScriptEdit& edit : script.edits) {
    std::swap(edit.a, edit.b);
    std::swap(edit.before, edit.after);
    if (edit.kind == EditKind::kRemove) {
      edit.kind = EditKind::kInsert;
    } else if (edit.kind == EditKind::kInsert) {
      edit.kind = EditKind::kRemove;
    }
  }
  for (auto& [a, b] : script.buffers) std::swap(a, b);
  sort(script);
  return script;
}

std::vector<StreamOp> apply_script(const EditScript& script, const std::vector<StreamOp>& stream) {
  return Application(script, stream).take();
}

}  // namespace steptape::diff
