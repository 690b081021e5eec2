#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "guards/entry.h"
#include "steptape/verdict.h"
#include "trace/model.h"
#include "trace/proved_values.h"

namespace steptape::guards {

/// The number that a recording found at this path; none where it found none.
using NumberAt = std::function<std::optional<double>(const std::string&)>;

/// Numbers of live objects that formulas read, such as hyperparameters: a plan holds for any values
/// of them, once it was compared with the eager step at several; but for those that no formula
/// accounts for.
class VaryingNumbers {
 public:
  enum class Kind {
    kFollowed,  ///< it enters the step through formulas and predicates alone
    kLiteral,   ///< it must be the recorded one
  };

  /// `guard`: what it is a mismatch of when a literal is not the recorded one.
  void add(std::string path, double recorded, trace::Index leaf, Kind kind,
           GuardKind guard = GuardKind::kHyperparameter);
  std::size_t size() const { return numbers_.size(); }

  /// Whether a plan may run with `values`, one for each number. Fills the leaves of `entry` and
  /// notes whether one has a value at which the plan was not proved.
  Verdict check(std::span<const double> values, Entry& entry) const;
  /// The plan was proved at the values that the newest check found.
  void settle();
  /// It was proved at these.
  void prove(const NumberAt& number_at);
  /// The plan is wrong at the values of the newest check that were not proved: it holds for those
  /// that were alone. False where there were none.
  bool pin();
  /// Whether it is one that moves and may have the proved values alone.
  bool is_pinned(const std::string& path) const;

 private:
  struct Number {
    std::string path;
    double recorded;
    trace::Index leaf;  ///< kNone: no formula reads it
    bool is_literal;
    GuardKind guard;
    trace::ProvedValues proved = {};
  };
  std::vector<Number> numbers_;
  /// Of the newest check: position and value.
  mutable std::vector<std::pair<std::size_t, double>> unproved_;
};

/// Whether a number that a formula reads may be `found` where it was `expected` while recording: of
/// the same kind, not a bool, both exact as doubles, and finite if that was.
bool may_follow(const trace::Value& expected, const trace::Value& found);

/// Whether all predicates of `recording` hold for these values of its leaves.
Verdict check_predicates(const trace::Recording& recording, std::span<const double> leaves);

/// The verdict on one whose formula gives `value`, and must not.
Verdict predicate_mismatch(const trace::Recording& recording, const trace::Predicate& predicate,
                           double value);

}  // namespace steptape::guards
