#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "diff/align/recording_pairs.h"
#include "diff/ledger/ledger_diff.h"
#include "diff/ledger/times.h"
#include "diff/numerics/numeric_differences.h"
#include "diff/stream_diff.h"
#include "trace/compare/finding.h"

namespace steptape::diff {

/// The respects in which traces are compared, in the order in which they are told.
enum class Section : std::uint8_t {
  kEnvironment,  ///< comparable at all? versions, environment, seeds, how far recordings got
  kLedger,       ///< what calls left behind, call by call
  kNumerics,     ///< what ops left, where both sides took digests of it
  kStructure,    ///< steps and recordings, op streams, and what steps do beside them
  kFormulas,     ///< what scalars follow from
  kOptimizer,    ///< groups, hyperparameters, state
  kModules,      ///< the tree, options, calls
  kGuards,       ///< what plans take for granted beside optimizers and modules; ambient switches
  kConstants,    ///< bytes that the step captured
  kRefusals,     ///< why a step runs eagerly
  kMemory,       ///< bytes that ops of modules make; they follow from the op stream
  kPlace,        ///< lines of the program
  kTime,         ///< how long calls and their ops took
};
inline constexpr std::size_t kSections = 13;

std::span<const Section> sections() noexcept;
std::string_view name_of(Section section) noexcept;
/// Throws Error (invalid_argument) when no section has this name.
Section section_of(std::string_view name);

/// Findings of each section but those of the op stream, of what ops left, of ledgers and of times.
class Findings {
 public:
  std::vector<trace::Finding>& of(Section section) {
    return all_[static_cast<std::size_t>(section)];
  }
  const std::vector<trace::Finding>& of(Section section) const {
    return all_[static_cast<std::size_t>(section)];
  }

 private:
  std::array<std::vector<trace::Finding>, kSections> all_;
};

/// How two recordings of one step differ.
struct RecordingDiff {
  RecordingPair pair;
  /// A warm-up of a step whose variants are compared too. No plan is made from it: it is told, and
  /// does not count, but for what its ops left.
  bool is_beside = false;
  std::uint64_t call = 0;  ///< of which call both are; 0 where that is not known
  StreamDiff stream;
  std::vector<ModuleStat> modules;  ///< of the stream
  NumericDifferences numerics;
  Findings findings;

  /// Edits and findings together.
  std::size_t count(Section section) const noexcept;
};

/// How two steps of one name differ.
struct StepDiff {
  std::string name;
  Findings findings;
  std::vector<RecordingDiff> recordings;
  std::optional<OpTimeDifferences> op_times;  ///< where both say how long ops took
  std::string_view op_times_only_in;          ///< "a" or "b" where one alone does
  /// Calls that one run alone recorded besides: they are not compared, and no difference.
  std::vector<std::uint64_t> calls_only_in_a, calls_only_in_b;
};

struct RecordingOfStep {
  const StepDiff* step = nullptr;
  const RecordingDiff* recording = nullptr;
};

/// How two traces differ. It holds no reference to them; ops and recordings stand as positions.
/// Left out: what a run is about by itself (host, process, time), saved state, bytes of inputs and
/// tracked tensors where ops have no digests, and numbers that formulas follow.
struct Diff {
  Findings findings;
  std::vector<StepDiff> steps;  ///< those that both have
  // Ledgers lie beside traces: whoever knows the files fills in these two.
  std::optional<LedgerDiff> ledger;  ///< where both runs left one
  std::string_view ledger_only_in;   ///< "a" or "b" where one run alone left one

  /// Whether both sides hold what the section compares: digests of ops, ledgers, times.
  bool compares(Section section) const noexcept;
  std::size_t count(Section section) const noexcept;
  /// The recordings of the first call in which ops left other bits, or a buffer was entered with
  /// others, noise left out: of the first step that has any. Null where there is none.
  RecordingOfStep first_numeric() const noexcept;
};

/// All must be valid. With `step`, of the step of this name alone. `controls` are other runs of the
/// program that left `a`: what differs between them and `a` is noise.
Diff compare(const trace::Trace& a, const trace::Trace& b, std::string_view step = {},
             std::span<const trace::Trace> controls = {});

}  // namespace steptape::diff
