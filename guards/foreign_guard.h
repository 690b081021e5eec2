#pragma once

#include <memory>
#include <string>
#include <vector>

#include "guards/entry.h"
#include "guards/varying_numbers.h"
#include "live/foreign.h"
#include "live/objects.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Guards the objects of another language through the watches that its front end keeps over them,
/// and reads the numbers that formulas start from.
class ForeignGuard {
 public:
  ForeignGuard(const trace::Recording& recording, const live::Objects& objects,
               const live::Snapshot& snapshot);

  /// The objects must be alive (Objects::check_alive). Fills the leaves of `entry`.
  Verdict check(Entry& entry) const;

  /// The part of it that shows in no trace: all but training flags and the values of numbers.
  Verdict check_unseen() const;

  /// Calls `visit(numbers)` for those of each object.
  template <typename Guard, typename Visit>
  static void for_each_numbers(Guard& guard, Visit&& visit) {
    for (auto& watched : guard.watched_) visit(watched.numbers);
  }

  /// Counters that the step advances, in the order of `advances`, as they are now.
  std::vector<std::int64_t> counters() const;
  const std::vector<trace::Advance>& advances() const { return advances_; }
  void advance() const;

 private:
  struct Watched {
    std::string name;
    std::unique_ptr<live::ForeignWatch> watch;
    VaryingNumbers numbers;
    mutable std::vector<double> values;  ///< of the newest reading
  };
  /// Into its `values`.
  static Verdict read(const Watched& watched);

  struct Counter {
    std::size_t watched, number;
  };
  std::vector<Watched> watched_;
  std::vector<Counter> counters_;
  std::vector<trace::Advance> advances_;  ///< one for each of `counters_`
};

}  // namespace steptape::guards
