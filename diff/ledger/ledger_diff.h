#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diff/ledger/times.h"
#include "trace/ledger.h"

namespace steptape::diff {

/// What a line has digests of, in the order in which a call meets them.
enum class CallPart : std::uint8_t { kInputs, kResults, kGradients, kParameters, kGenerators };
inline constexpr std::size_t kCallParts = 5;

std::span<const CallPart> call_parts() noexcept;
std::string_view name_of(CallPart part) noexcept;

enum class PartStatus : std::uint8_t { kNotTaken, kEqual, kDiffers };
std::string_view name_of(PartStatus status) noexcept;

/// A call that did not leave the same on both sides.
struct CallDifference {
  std::uint64_t call = 0;
  std::array<PartStatus, kCallParts> parts{};
  /// Whether the ledgers show that the runs had not parted before: both have the step's call before
  /// it, which left the same, and no call of another step differs that ended earlier in `a`.
  bool is_entry_equal = false;

  PartStatus of(CallPart part) const { return parts[static_cast<std::size_t>(part)]; }
  /// "results, parameters"
  std::string words_of(PartStatus status) const;
  /// Where the difference comes from: "it begins in this call", as inputs are equal; "it begins in
  /// this call or before it", where nobody knows in which state that began; "it came with the
  /// inputs"; "inputs were not compared".
  std::string_view origin() const noexcept;
};

/// How long calls of one outcome took on both sides, in microseconds.
struct CallTimeDifference : TimeDifference {
  trace::CallOutcome outcome = trace::CallOutcome::kEager;
};

/// The calls of the step of one name; those of one number are compared.
struct StepLedgerDiff {
  std::string name;
  std::uint64_t compared = 0;
  std::uint64_t differing = 0;
  /// Of those that differ: whatever differs, differs in a control too.
  std::uint64_t noisy = 0;
  std::uint64_t without_digests = 0;  ///< of those compared: no digest was taken on both sides
  std::uint64_t only_in_a = 0;
  std::uint64_t only_in_b = 0;
  std::optional<CallDifference> first;    ///< noise left out
  std::vector<CallTimeDifference> times;  ///< of outcomes that both sides have
};

/// How two ledgers differ. Outcomes, variants and verdicts are not compared: audits come at random,
/// and whatever ran must leave the same.
struct LedgerDiff {
  std::vector<StepLedgerDiff> steps;  ///< as `a` has them, then those of `b` alone
  std::size_t first = kNoStep;        ///< the step whose first difference comes first in `a`

  /// Calls that differ, noise left out, or that only one side has.
  std::uint64_t differing() const noexcept;
  /// Calls that differ in a control too.
  std::uint64_t noisy() const noexcept;
  /// Times that differ.
  std::uint64_t differing_times() const noexcept;
  /// "train: call 57: results"; "train: 3 calls only in the second"; empty where nothing differs.
  std::string verdict() const;

  static constexpr std::size_t kNoStep = ~std::size_t{0};
};

/// Of ledgers as storage::read_ledger gives them. With `step`, of the step of this name alone.
/// `controls` are of other runs of the program that left `a`.
LedgerDiff compare(const trace::Ledger& a, const trace::Ledger& b, std::string_view step = {},
                   std::span<const trace::Ledger> controls = {});

struct OutcomeSummary {
  trace::CallOutcome outcome = trace::CallOutcome::kEager;
  Times times;
};

struct VerdictCount {
  GuardKind kind = GuardKind::kNone;
  std::uint64_t calls = 0;
};

/// What the lines of a ledger come to. Only what occurs is listed, in the order of the enums.
struct LedgerSummary {
  std::uint64_t calls = 0;
  std::uint64_t replayed = 0;
  std::vector<OutcomeSummary> outcomes;
  std::vector<VerdictCount> verdicts;
};

/// One call of a step in several processes that train together.
struct RankCall {
  std::uint64_t call = 0;
  std::vector<const trace::LedgerLine*> lines;  ///< by process; null where it has none
  /// By part and process: processes of one number left the same of it. Counted from 0 in the order
  /// of processes; kNone where no digest was taken.
  std::array<std::vector<std::size_t>, kCallParts> groups;

  const std::vector<std::size_t>& of(CallPart part) const {
    return groups[static_cast<std::size_t>(part)];
  }
  bool differs(CallPart part) const;

  static constexpr std::size_t kNone = ~std::size_t{0};
};

/// Calls that at least two of the ledgers have, in their order.
std::vector<RankCall> calls_of_ranks(std::span<const trace::Ledger* const> ledgers,
                                     std::string_view step);

/// With `step`, of the step of this name alone.
LedgerSummary summarize(const trace::Ledger& ledger, std::string_view step = {});

}  // namespace steptape::diff
