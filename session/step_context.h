#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "guards/entry.h"
#include "live/values.h"
#include "session/keep/record_schedule.h"
#include "session/observe/journal.h"
#include "session/plans.h"
#include "steptape/pack.h"

namespace steptape::session {

/// How a call is entered, as far as it can be told before the call runs at next to no cost: the
/// geometry of its tensors, its other arguments (numbers of any value alike), and grad mode. Two
/// calls of one way may still need two plans (trace::same_entry looks at more).
std::string way_of_entry(std::span<const live::Argument> arguments);

/// What the calls of one step share.
struct StepContext {
  SessionState& session;
  std::string name;
  std::string place;
  /// Made by Session::update. Such a step never throws for being refused: the step before it has
  /// run.
  bool is_update;
  RecordSchedule schedule;
  Journal journal;
  Plans plans;
  guards::Entry entry;  ///< what the guards find out, kept for its memory: of the newest call

  StepContext(SessionState& of, std::string with_name, std::string at, bool of_update);

  /// For the ledger, and for recordings that are asked for by what calls return.
  void note_results(const pack::Results& results);
};

/// What a call is entered with.
class Given {
 public:
  /// `declared` must outlive this.
  Given(std::vector<live::Argument> arguments, const guards::Declared& declared)
      : arguments(std::move(arguments)), declared(declared) {}

  const std::vector<live::Argument> arguments;
  const guards::Declared& declared;

  /// way_of_entry, as it was when this was asked first.
  const std::string& way() const {
    if (way_.empty()) way_ = way_of_entry(arguments);
    return way_;
  }

 private:
  mutable std::string way_;
};

}  // namespace steptape::session
