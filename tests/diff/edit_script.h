#pragma once

#include <utility>
#include <vector>

#include "diff/stream_diff.h"

namespace steptape::diff {

/// An edit with the op that it takes away and the one that it brings.
struct ScriptEdit {
  EditKind kind = EditKind::kRemove;
  trace::Index a = trace::kNone;
  trace::Index b = trace::kNone;
  StreamOp before;  ///< of removed and changed ops, as the first stream numbers buffers
  StreamOp after;   ///< of inserted and changed ops, as the second does
  friend bool operator==(const ScriptEdit&, const ScriptEdit&) = default;
};

/// What turns one op stream into another, and back.
struct EditScript {
  std::vector<ScriptEdit> edits;  ///< removals by `a`, then insertions, moves and changes by `b`
  /// Which buffer of the second stream stands for one of the first, ascending.
  std::vector<std::pair<trace::BufferId, trace::BufferId>> buffers;
  friend bool operator==(const EditScript&, const EditScript&) = default;
};

std::vector<StreamOp> ops_of(const OpStream& stream);
/// Whether two streams do the same: equal ops, and the same tensors share memory.
bool same_stream(const std::vector<StreamOp>& a, const std::vector<StreamOp>& b);

EditScript script_of(const StreamDiff& diff, const OpStream& a, const OpStream& b);
/// The script that leads back.
EditScript inverse(EditScript script);
/// Throws Error (invalid_argument) when the script was not made for `stream`.
std::vector<StreamOp> apply_script(const EditScript& script, const std::vector<StreamOp>& stream);

}  // namespace steptape::diff
