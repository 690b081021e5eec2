#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace steptape {

/// When a plan is run beside the eager step and compared with it, bit for bit.
struct Verify {
  bool first = true;  ///< the trial before a plan is trusted
  double rate =
      1.0 /
      1000;  ///< audits: after 1/2, 1/4, ... of the steps, this share of them, drawn at random
};

enum class OnDivergence {
  kThrow,   ///< a failed audit throws Error (internal) after the eager step has run
  kReport,  ///< a failed audit is a refusal; the step goes on eagerly
  /// The same, and tracked tensors, step counters and generators are put back to what they were
  /// after the plan's newest call that was verified: replays in doubt are undone, and the calls
  /// since then with them. Costs a copy of all tracked state a plan.
  kRestore,
};

enum class OnRefusal {
  kEager,  ///< a refused step runs eagerly
  kThrow,  ///< the call after the one that was refused throws Error (unsupported), nothing changed
};

/// What becomes of a step with an op that leaves other bits each time it runs on the same inputs:
/// atomics on a GPU, threads on a CPU (docs/numerics.md).
enum class Determinism {
  /// The op is found by running it again beside the eager step, and listed (PlanStats). Replays
  /// take what it leaves. Every trial and audit compares it with the eager step's within the spread
  /// that it shows by itself, and everything else bit for bit, given what it left.
  kListed,
  kStrict,  ///< the step is refused (nondeterministic_op)
};

/// What a value that the step reads from a tensor (`item`, a comparison on the host) is for.
enum class HostReads {
  /// It may decide something: a read that nothing explains must stay as it was in the probes, or
  /// the
  /// step is refused (host_read).
  kRefuse,
  /// The step only looks at what it reads (logging, a norm that nobody uses): any value will do.
  kObserve,
};

/// How ops are intercepted while recording.
enum class Interception {
  /// A fallback on the dispatch key `Fake`. Where another library, or a later torch, has one, steps
  /// are
  /// refused (no_interceptor) and run eagerly.
  kFakeKey,
  /// A torch-dispatch mode written in C++, which needs no key. LibTorch itself looks at whether a
  /// mode is
  /// active: some backward formulas (prod, cumprod, std) then take another branch, and autocast is
  /// left, so
  /// recorded steps may differ from eager ones in their last bits. For steps known to hold none of
  /// these.
  kDispatchMode,
};

/// Which calls of a step are recorded besides those that plans are made from. Such a call runs
/// eagerly, and its recording stands in the trace with the number of the call, for `steptape diff`
/// and `bisect`. Calls are counted from 1 over the whole run (Options::resume).
struct Record {
  std::uint64_t first = 0;             ///< the first so many
  std::uint64_t every = 0;             ///< and each so many-th; 0: none of these
  std::vector<std::uint64_t> at = {};  ///< and these
  /// And the one after a call that is the first to return an infinity or a NaN.
  bool on_nonfinite = false;
  /// And the one after this signal, such as SIGUSR1, for which a handler is installed that calls
  /// the one before it; 0: none.
  int on_signal = 0;
  /// Whether these recordings hold all that their calls found, parameters, optimizer state and
  /// arguments, and what each op left: from them `steptape verify` does the calls again.
  bool state = false;
};

struct Options {
  /// Where the trace is kept; written when a plan becomes trusted. In a process of several, as
  /// launchers tell by the environment, the name gains its rank: "run.rank3.tape". Empty: nowhere.
  /// What an earlier run of the same program left there is started from: a call that agrees with
  /// it needs no second probe. Of another program, or with recordings that were asked for, it is
  /// kept as "run.tape.1", ...
  std::string trace;
  Verify verify = {};
  OnDivergence on_divergence = OnDivergence::kThrow;
  OnRefusal on_refusal = OnRefusal::kEager;
  Determinism determinism = Determinism::kListed;
  HostReads host_reads = HostReads::kRefuse;
  Interception interception = Interception::kFakeKey;
  /// Plans kept for one step; for one more, the one that was used longest ago leaves. Beyond 8 they
  /// also leave while all of them hold more than 1 GiB (docs/refusals.md, too_many_variants).
  std::uint32_t max_variants = 64;
  /// On a GPU: gradients lie in memory that stays theirs between replays, and are not copied to new
  /// memory by each. A gradient that the program still holds is moved out of it first. Clear them
  /// with `zero_grad(set_to_none=false)`, or inside the step.
  bool static_gradients = false;
  /// Seed of the generator that draws audits; 0 takes one from the system. Never torch's own
  /// generator.
  std::uint64_t audit_seed = 0;
  /// What is written down of each event: "guards,plan", "all", "none"; with ":run.jsonl" after it
  /// as lines of JSON that are appended to that file, else one line an event on stderr
  /// (docs/observing.md). Empty: as the environment variable STEPTAPE_LOG says in the same words.
  std::string log = {};
  /// Beside the trace, "run.tape.ledger", a line of 64 bytes for each call: outcome, verdict,
  /// digest of the results, time (docs/trace_format.md). `steptape ledger` and `diff` read it. That
  /// of an earlier run is kept as "run.tape.ledger.1", ...; one that another process has open is
  /// left alone, and so is its trace.
  bool ledger = true;
  /// Takes digests of more: gradients, parameters, arguments and generators of each call, for the
  /// ledger, and what each op of a recorded call left. `steptape diff` finds the first op in which
  /// two runs part by them. Reads all of this memory at each call.
  bool digests = false;
  /// Recordings say how long each op took. `steptape diff` compares modules by it; a step that is
  /// bound by overhead takes longer while it is recorded, and its ops do not.
  bool timings = false;
  Record record = {};
  /// The run that the files at `trace` are of goes on, as from a checkpoint: the ledger is appended
  /// to, and calls are counted on from its last.
  bool resume = false;
};

}  // namespace steptape
