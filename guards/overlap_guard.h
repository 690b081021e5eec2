#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Guards that nothing that the step uses lies in memory that it writes, but where it did so while
/// recording: a
/// plan takes what were two memories for two, and ops that write assert that they do not overlap
/// what they read by looking at storages, which a plan splits.
class OverlapGuard {
 public:
  /// `bound` is the plan's list of bound buffers, `written` those of all buffers that it writes.
  OverlapGuard(const trace::Recording& recording, const std::vector<trace::BufferId>& bound,
               const std::vector<trace::BufferId>& written);

  /// `memory` has the first byte of each bound buffer; `moves` grows whenever one other than an
  /// input's is elsewhere than in the check before.
  Verdict check(std::span<void* const> memory, std::uint64_t moves) const;
  /// The same for all memory but that of inputs: `p.data = q.data` gives two tensors one memory.
  Verdict check_apart(std::span<void* const> memory, std::uint64_t moves) const;

 private:
  struct Bound {
    std::string path;
    std::size_t bytes;
    std::size_t position;
    bool is_written;
    /// Of a window: the positions of the buffers that contain it. Where one of them is written, the
    /// recording uses only that one.
    std::vector<std::size_t> lies_in = {};
    bool is_part_of(const Bound& other) const;
  };
  struct Range {
    std::uintptr_t first;
    std::uintptr_t last;  ///< after the bytes of this and of all ranges before it
  };
  static Verdict check_each(const Bound& input, const std::vector<Bound>& others,
                            std::span<void* const> memory);
  /// What an input must not lie over, beside what is elsewhere in each call.
  struct Against {
    std::vector<Bound> bound;
    // Where they lie stays as it is in most programs; sorted once it did so for a check.
    mutable std::vector<Range> sorted;

    void sort(std::span<void* const> memory) const;
    /// Whether the input may lie over one, where `sorted` is of this memory.
    bool may_overlap(const Bound& input, std::span<void* const> memory) const;
  };

  std::vector<Bound> inputs_;
  std::vector<Bound> others_;
  Against lasting_;             ///< written, and guarded as tracked tensors are
  Against used_;                ///< where inputs are written: everything that is not an input
  std::vector<Bound> passing_;  ///< written, and elsewhere in each call, as inputs are
  mutable std::uint64_t moves_ = 0;
  mutable bool is_sorted_ = false, is_known_ = false;
  mutable std::optional<std::uint64_t> moves_apart_;  ///< where they were found to lie apart
};

}  // namespace steptape::guards
