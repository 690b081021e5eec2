#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "steptape/refusal.h"
#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape::session {

/// What an event is about, as logs are asked for it.
enum class Category : std::uint8_t {
  kGuards,  ///< a call fell back, since a guard failed in each plan
  kPlan,    ///< a plan was made or dropped
  kVerify,  ///< a trial or an audit was over
  kRecord,  ///< a call was recorded
  kRefuse,  ///< something cannot be replayed
  kTrace,   ///< the trace was written, or could not be
};

/// "guards", "plan", ...
std::string_view name_of(Category category) noexcept;

/// Something that happened to a step: a value. None is made in a plain replay.
struct Event {
  Category category = Category::kPlan;
  std::string name;  ///< "fell_back", "trial_passed", ...: stable
  std::string text;  ///< a sentence without a final stop

  std::uint64_t session = 0;  ///< counted from 1 in the process
  std::string step;
  std::string place;
  std::uint64_t call = 0;  ///< of the step, counted from 1: the one under way or the newest

  /// What there is beside that.
  std::optional<std::uint64_t> variant = {};
  std::optional<CountedVerdict> verdict = {};
  std::optional<RefusalCode> code = {};
  std::optional<PlanStats> plan = {};
  std::optional<double> us = {};  ///< how long it took
};

/// "steptape: session 1, step "train" (train.cc:41), call 17: plan: variant 0 planned: ..."; on one
/// line, whatever the text holds.
std::string line_of(const Event& event);
/// One object of JSON, docs/observing.md says with which keys. `time_s` is the time since the
/// epoch.
std::string json_of(const Event& event, double time_s);

}  // namespace steptape::session
