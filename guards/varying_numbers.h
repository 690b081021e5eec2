#pragma once

#include <span>
#include <string>
#include <vector>

#include "guards/entry.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// Numbers of live objects that formulas read, such as hyperparameters: a plan holds for any values
/// of them, but for those that no formula accounts for.
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
  /// notes whether one has a value that no verified run has seen.
  Verdict check(std::span<const double> values, Entry& entry) const;
  /// The plan was verified with these: they count as seen.
  void settle(std::span<const double> values);
  /// The plan went wrong with these: it holds for the recorded ones alone from here on.
  void pin(std::span<const double> values);

 private:
  struct Number {
    std::string path;
    double recorded;
    trace::Index leaf;  ///< kNone: no formula reads it
    bool is_literal;
    GuardKind guard;
    bool is_seen = false;  ///< other values than the recorded one have been verified
  };
  std::vector<Number> numbers_;
};

}  // namespace steptape::guards
