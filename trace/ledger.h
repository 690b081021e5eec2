#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steptape/guard_kind.h"
#include "trace/digest.h"

namespace steptape::trace {

/// What became of one call of a step. Names and numbers are stable: they stand in files.
enum class CallOutcome : std::uint8_t {
  kRecorded = 1,  ///< it ran eagerly, and a recording was made of it
  kTrial,         ///< a plan ran, was undone, and was compared with the eager run: its first time
  kAudit,         ///< the same later, at random
  kReplayed,
  kEager,  ///< no plan was asked, or none fitted
};

std::span<const CallOutcome> call_outcomes() noexcept;
std::string_view name_of(CallOutcome outcome) noexcept;

/// One call of a step. A digest of 0 was not taken.
struct LedgerLine {
  std::uint16_t step = 0;  ///< in Ledger::steps
  std::uint64_t call = 0;  ///< of the step, counted from 1
  CallOutcome outcome = CallOutcome::kEager;
  GuardKind verdict = GuardKind::kNone;  ///< of a call that fell back: which guard failed
  std::uint16_t variant = kNoVariant;    ///< whose plan ran, counted from 0
  std::uint64_t inputs = 0;              ///< before the call; all others after it
  std::uint64_t results = 0;
  std::uint64_t gradients = 0;
  std::uint64_t parameters = 0;
  std::uint32_t generators = 0;
  std::uint32_t microseconds = 0;  ///< of the whole call; the largest number stands for more
  friend bool operator==(const LedgerLine&, const LedgerLine&) = default;

  static constexpr std::uint16_t kNoVariant = 0xffff;
};

/// What every call of a training did, in the order in which calls ended, so that two runs can be
/// compared call by call. A training that went back to a checkpoint has some calls twice: the later
/// line holds.
struct Ledger {
  Digest run;  ///< stands for the run that began it
  std::vector<std::string> steps;
  std::vector<LedgerLine> lines;
  friend bool operator==(const Ledger&, const Ledger&) = default;
};

}  // namespace steptape::trace
