#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "diff/align/alignment.h"
#include "diff/op_changes.h"
#include "diff/op_stream.h"

namespace steptape::diff {

enum class EditKind : std::uint8_t { kRemove, kInsert, kMove, kChange };

std::string_view name_of(EditKind kind) noexcept;

/// One edit of an op stream. An op that is moved and changed has two.
///
/// Each costs 1, so that a move is cheaper than to remove an op and insert it elsewhere, and a
/// change cheaper than to replace it. For the pairs that `align` found no script is cheaper: what
/// has no pair must be removed or inserted, what differs changed, and as few as possible move.
struct Edit {
  EditKind kind = EditKind::kRemove;
  trace::Index a = trace::kNone;                ///< in the first recording; kNone of an inserted op
  trace::Index b = trace::kNone;                ///< in the second; kNone of a removed op
  MatchedBy matched_by = MatchedBy::kSequence;  ///< of moves and changes
  std::vector<OpChange> changes;                ///< of a change
  friend bool operator==(const Edit&, const Edit&) = default;
};

/// How two op streams differ. Streams that do the same have no edits; those of compare(b, a) are
/// the inverse ones.
struct StreamDiff {
  Alignment alignment;
  std::vector<Edit> edits;  ///< in the order of the step, a removed op where it was

  std::size_t cost() const noexcept { return edits.size(); }
};

StreamDiff compare(const OpStream& a, const OpStream& b);

/// How many ops a module has in both recordings, and how many edits.
struct ModuleStat {
  std::string module;  ///< its path; empty for ops that no module issued
  std::size_t ops_a = 0, ops_b = 0;
  std::size_t removed = 0, inserted = 0, moved = 0, changed = 0;
  friend bool operator==(const ModuleStat&, const ModuleStat&) = default;
};

/// One for each module that issued ops, as the first recording meets them, then those that only the
/// second has. An edit counts where its op stood first; an inserted op where it stands.
std::vector<ModuleStat> stats_of(const StreamDiff& diff, const OpStream& a, const OpStream& b);

}  // namespace steptape::diff
