#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steptape/refusal.h"
#include "steptape/verdict.h"

namespace steptape {

/// How often a refusal was met.
struct CountedRefusal {
  Refusal refusal;
  std::uint64_t times = 0;
};

/// A guard that made calls fall back: no plan of the step fitted, and this guard failed in the one
/// that had fitted last.
struct CountedVerdict {
  Verdict verdict;  ///< in the newest of these calls
  std::uint64_t times = 0;
  /// How many calls before the newest of these its plan's guards had all held; 0: never yet.
  std::uint64_t last_held = 0;
  friend bool operator==(const CountedVerdict&, const CountedVerdict&) = default;
};

/// Why one variant did not fit a call.
struct VariantVerdict {
  std::uint64_t variant = 0;  ///< PlanStats::number
  Verdict verdict;
  std::uint64_t last_held = 0;  ///< as in CountedVerdict
  friend bool operator==(const VariantVerdict&, const VariantVerdict&) = default;
};

/// Calls of a plan that no kernel does, so that LibTorch's dispatcher is called for them, by
/// operator and reason: "aten::convolution: its results are the user's".
struct CountedReason {
  std::string reason;
  std::uint64_t calls = 0;
  friend bool operator==(const CountedReason&, const CountedReason&) = default;
};

/// What a part of a run took: a call, or several that are done in one pass over memory.
struct StageTime {
  std::vector<std::uint64_t> ops;  ///< by their places in the recording, in the order of the run
  std::string reason;              ///< why no kernel does it; empty: one does
  std::uint64_t ns = 0;
};

/// An op of a plan that leaves other bits each time it runs on the same inputs
/// (Determinism::kListed).
struct NondeterministicOp {
  std::string op;              ///< "aten::index_put_"
  std::int64_t op_index = -1;  ///< position in the recording
  std::string module;          ///< path of the module that ran it, or empty
  std::string place;           ///< the program's own line, or empty
  /// The largest difference that it showed from itself, and that a replay showed from the eager
  /// step: of elements, as a share of the largest one.
  double spread = 0;
  double largest_difference = 0;
  friend bool operator==(const NondeterministicOp&, const NondeterministicOp&) = default;
};

/// A tensor that each replay copies on its device.
struct TensorCopy {
  std::string path;
  std::uint64_t bytes = 0;
  std::string why;
  std::string remedy;  ///< what to write in the program so that it need not be
  friend bool operator==(const TensorCopy&, const TensorCopy&) = default;
};

/// What a plan is on a device that runs it as graphs.
struct DeviceStats {
  std::string device;         ///< "cuda:0"; empty: the plan runs on the CPU
  std::uint64_t graphs = 0;   ///< launched by a replay
  std::uint64_t nodes = 0;    ///< of all of them
  std::uint64_t updated = 0;  ///< kernels in them that take numbers which vary
  std::uint64_t grouped = 0;  ///< ops that are done by one call of a `_foreach_` op with others
  std::uint64_t groups = 0;   ///< such calls
  std::uint64_t ahead = 0;    ///< calls made before graphs: of the host, or bringing its bytes
  std::vector<std::string> between;  ///< calls that no graph holds, and why
  std::uint64_t captures = 0;        ///< how often the graphs were made
  std::string captured_for;        ///< why they were made the last time, if that was not the first
  double capture_us = 0;           ///< how long that took, warm-up included
  double launch_us = 0;            ///< the host's part of the newest replay
  std::uint64_t pool_bytes = 0;    ///< of the graphs' own memory
  std::uint64_t static_bytes = 0;  ///< of memory that inputs are copied into
  std::vector<TensorCopy> copies;
};

/// What a plan is made of; of one variant.
struct PlanStats {
  std::uint64_t number = 0;    ///< of the variant: the step's plans are counted from 0
  std::uint64_t ops = 0;       ///< recorded
  std::uint64_t calls = 0;     ///< made by a replay
  std::uint64_t prepared = 0;  ///< calls that kernels do (docs/kernels.md)
  std::uint64_t stages = 0;    ///< what a replay does one after the other: calls, or passes
  std::vector<CountedReason> unprepared;  ///< most frequent first
  /// No sgemm that is known to be LibTorch's was found in the process: its products are prepared
  /// after it, not at it.
  bool lacks_blas = false;
  std::uint64_t arena_bytes = 0;      ///< planned memory of all temporaries
  std::uint64_t temporary_bytes = 0;  ///< what they would take without sharing
  std::uint64_t max_live_bytes = 0;   ///< lower bound of the arena
  std::uint64_t adopted = 0;          ///< calls whose results stay in memory that the op allocates
  double plan_us = 0;                 ///< time it took to make the plan
  std::uint64_t replays = 0;
  std::uint64_t rebinds = 0;  ///< calls that found tracked tensors in other memory, and took it up
  /// Made after one probe, which agreed with a plan of an earlier run in the trace.
  bool is_warm_start = false;
  std::vector<NondeterministicOp> nondeterministic;
  DeviceStats device;
};

/// Counts by outcome; every call of a step is in exactly one of `recorded`, `trials`, `audits`,
/// `replayed` and `eager`.
struct Stats {
  std::uint64_t steps = 0;
  std::uint64_t recorded = 0;  ///< warm-ups, probes, and proofs of numbers that move
  std::uint64_t trials = 0;
  std::uint64_t audits = 0;
  std::uint64_t replayed = 0;
  std::uint64_t eager = 0;
  std::vector<PlanStats> variants;
  std::vector<CountedRefusal> refusals;
  std::uint64_t fell_back = 0;  ///< calls that no plan fitted, though there were some
  /// The guards that they fell back for, most frequent first; of guards met rarely only the newest
  /// are kept, 64 in all.
  std::vector<CountedVerdict> fallbacks;
  /// Why the newest call that did not replay found no plan; holds when it did or there was none to
  /// check.
  Verdict last_verdict;
  std::vector<VariantVerdict> last_verdicts;  ///< the same of each variant that was asked
  std::string trace_problem;                  ///< why the trace could not be written, or empty
  std::string ledger_problem;                 ///< why the ledger could not be written, or empty
  std::string log_problem;                    ///< why the log could not be written, or empty
};

}  // namespace steptape
