#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "diff/align/alignment.h"
#include "diff/align/op_keys.h"
#include "diff/op_stream.h"

namespace steptape::diff {

/// In which respect two paired ops differ.
enum class OpAspect : std::uint8_t {
  kOperator,  ///< another overload, or another operator with the same arguments
  kModule,    ///< another module call or phase issued it
  kArgument,  ///< another tensor, or another kind or number of arguments
  kDtype,
  kDevice,
  kShape,
  kLayout,  ///< strides, offset, conjugate, negative and wrapped-number bits
  kScalar,  ///< other bits, or a formula on one side alone
  kWrites,  ///< other writes that the schema does not say
};

std::string_view name_of(OpAspect aspect) noexcept;

struct OpChange {
  OpAspect aspect = OpAspect::kOperator;
  std::string place;     ///< "alpha", "tensors[1]", "result"; empty for the op itself
  std::string expected;  ///< in the first recording
  std::string found;     ///< in the second
  friend bool operator==(const OpChange&, const OpChange&) = default;

  /// "alpha: 1 → 2"
  std::string text() const;
};

/// In what op `x` of `a` and the op `y` that stands for it in `b` differ; empty: they are equal
/// as streams are, with `buffers` standing for each other.
std::vector<OpChange> changes_of(const OpStream& a, trace::Index x, const OpStream& b,
                                 trace::Index y, const BufferPairs& buffers);

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
