#pragma once

#include <span>
#include <vector>

#include "diff/align/op_keys.h"
#include "diff/align/sequence.h"

namespace steptape::diff {

/// Whether ops of two operators may be paired when they take the same arguments.
enum class Replacement { kAllowed, kForbidden };

/// Aligns parts of two op streams, each a list of ops in their order, and learns from the pairs
/// which buffers stand for each other. The keys must outlive it.
class GapAlignment {
 public:
  GapAlignment(const std::vector<OpKeys>& a, const std::vector<OpKeys>& b) : a_(a), b_(b) {}

  /// The pairs, ascending. At the least cost where at most 128 by 128 ops differ; larger parts are
  /// first divided at ops that are equal, then at those of equal structure, then by operator.
  std::vector<Match> align(std::span<const trace::Index> a, std::span<const trace::Index> b,
                           Replacement replacement);

 private:
  struct Part {
    std::span<const trace::Index> a, b;
  };
  enum class Level { kExact, kStructure, kName };
  enum class Likeness { kEqual, kChanged, kNone };

  void align_part(Part part, Level level);
  void divide(const Part& part, Level level);
  void align_table(const Part& part);
  Likeness likeness_of(trace::Index a, trace::Index b) const;
  /// Whether they are equal, as far as is known of their buffers.
  bool are_equal(trace::Index a, trace::Index b) const;
  bool may_join_buffers(trace::Index a, trace::Index b) const;
  void add(trace::Index a, trace::Index b);

  const std::vector<OpKeys>& a_;
  const std::vector<OpKeys>& b_;
  Replacement replacement_ = Replacement::kAllowed;
  BufferPairs buffers_;
  std::vector<Match> found_;
};

}  // namespace steptape::diff
