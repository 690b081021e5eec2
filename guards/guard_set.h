#pragma once

#include <span>
#include <string>
#include <vector>

#include "guards/ambient_guard.h"
#include "guards/entry.h"
#include "guards/foreign_guard.h"
#include "guards/input_guard.h"
#include "guards/module_guard.h"
#include "guards/optimizer_guard.h"
#include "guards/overlap_guard.h"
#include "guards/tracked_guard.h"
#include "guards/varying_numbers.h"
#include "guards/window_guard.h"
#include "live/collectives.h"
#include "live/hooks.h"

namespace steptape::guards {

/// A tensor outside the step that nobody tracked, held weakly: its death ends the plan.
struct OutsideTensor {
  std::string path;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  struct Object {
    const trace::Tensor* geometry;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> object;
    live::Hooks hooks;
    bool requires_grad = false;
  };
  std::vector<Object> objects;  ///< over it, that the program held on to
};

/// All preconditions of one plan over the live objects, and the memory that a run of it needs. Made
/// from a recording; checked before every replay, what fails most first; runs none of the user's
/// code.
class GuardSet {
 public:
  /// `bound` is the plan's list of bound buffers, `written` those of all buffers that it writes.
  /// Everything but `recording`, which must outlive this, is read now only.
  GuardSet(const trace::Recording& recording, const std::vector<trace::BufferId>& bound,
           const std::vector<trace::BufferId>& written, const live::Objects& objects,
           const live::Snapshot& snapshot, std::vector<OutsideTensor> outside);

  /// Whether the plan may run now. When it may, `entry` holds all that the run needs. The tracked
  /// objects must be alive (Objects::check_alive).
  Verdict check(std::span<const live::Argument> arguments, const Declared& declared,
                Entry& entry) const;

  /// Whether what the program holds now is what the plan was made for, but for what a player knows
  /// and asks about itself: values of numbers, training flags, whether gradients are there, and
  /// where memory lies. The tracked objects must be alive (Objects::check_alive).
  bool fits_program() const;
  /// Writes the bytes that tensors outside the step hold now into `recording`, a copy of the
  /// plan's: in this process each run reads them where they lie.
  void describe_outside(trace::Recording& recording) const;

  const TrackedGuard& tracked() const { return tracked_; }
  /// Whether the plan exchanges tensors with other processes.
  bool has_groups() const { return !groups_.empty(); }
  /// Step counters that the step advances, in the order of `advances`, as they are now.
  std::vector<std::int64_t> counters() const;
  std::vector<trace::Advance> advances() const;
  /// Advances them, after a replay.
  void advance() const;

  /// The plan ran on the memory that the newest check found.
  void forget_moves() const { tracked_.forget_moves(); }
  /// The plan was compared with the eager step, as the newest check found the inputs' addresses.
  void settle_remainders() { remainders_.settle(); }
  /// It is wrong there: from here on it holds for those alone at which it was compared.
  void pin_remainders() { remainders_.pin(); }
  /// The plan was proved at the numbers that the newest check found.
  void settle();
  /// It was proved at these.
  void prove(const NumberAt& number_at);
  /// The plan is wrong at those that were not proved: from here on it holds for the proved ones
  /// alone. False where there were none.
  bool pin();
  /// Whether the number at this path moves and may have its proved values alone.
  bool is_pinned(const std::string& path) const;

 private:
  template <typename Set, typename Visit>
  static void for_each_numbers(Set& set, Visit&& visit);
  /// Notes the numbers among arguments and declared values that are new.
  Verdict check_given(Entry& entry) const;
  Verdict check_declared(const Declared& declared, Entry& entry) const;
  /// Where the inputs and the windows lie.
  Verdict place_inputs(std::span<const live::Argument> arguments, Entry& entry) const;
  Verdict check_outside(std::span<void*> memory) const;
  Verdict check_groups() const;
  static Verdict check_objects(const OutsideTensor& outside, const trace::Buffer& buffer);

  struct BoundOutside {
    OutsideTensor tensor;
    const trace::Buffer* buffer;
    std::size_t position;
    mutable const void* address = nullptr;  ///< as the newest check found it
  };
  /// As TrackedGuard::check_unplaced.
  static Verdict check_unplaced(const BoundOutside& outside);

  const trace::Recording& recording_;
  std::size_t bound_;
  AmbientGuard ambient_;
  std::vector<live::NamedGroup> groups_;  ///< that collectives of the plan go through
  ModuleGuard modules_;
  OptimizerGuard optimizers_;
  ForeignGuard foreign_;
  TrackedGuard tracked_;
  InputGuard inputs_;
  WindowGuard windows_;
  mutable Remainders remainders_;
  VaryingNumbers given_;  ///< arguments and declared values that formulas read
  std::vector<trace::Index> given_leaves_;
  mutable std::vector<double> given_values_;  ///< of the newest check
  OverlapGuard overlap_;
  std::vector<BoundOutside> outside_;
  mutable std::uint64_t outside_moves_ = 0;
  std::vector<trace::Index> host_value_leaves_;  ///< kNone: must be the recorded one
};

}  // namespace steptape::guards
