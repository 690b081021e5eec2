#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace steptape {

/// Why a step, or a part of it, cannot be replayed. Each code has an anchor of its name in
/// docs/refusals.md (cause, example, remedy); a test holds page and enum together. Names and
/// numbers are stable: a code that falls out of use keeps its number.
enum class RefusalCode : std::uint8_t {
  kHostRead = 1,          ///< the host reads a value of a tensor inside the step
  kDataDependentShape,    ///< a tensor's shape depends on the contents of another
  kUntrackedWrite,        ///< the step writes a tensor that nobody tracked
  kUnwrittenRead,         ///< an op reads bytes that no recorded op wrote
  kWrittenOutside,        ///< memory changed between two ops: NumPy, data_ptr, an extension
  kUnannotatedWrite,      ///< an op wrote an argument that its schema does not mark as written
  kHostTensorVaries,      ///< a tensor that the host fills inside the step differs between probes
  kOutsideTensorVaries,   ///< the step reads another outside tensor than in the probe before
  kOverlappingMemory,     ///< two storages lie over the same bytes
  kEscapedBuffer,         ///< a tensor made inside the step stays alive and is not a result
  kReboundTensor,         ///< a tracked tensor has another storage or shape after the step
  kTensorKind,            ///< sparse, quantized, nested, meta, subclass or another unplannable kind
  kDevice,                ///< a tensor on a device that no backend serves
  kDispatchMode,          ///< a dispatch mode, functorch transform or tracer is active
  kGeneratorSeek,         ///< the step sets or resets a random generator
  kUntrackedGenerator,    ///< an op draws from a generator that nobody tracked
  kUnreplayableOp,        ///< an op that no plan can call: not of aten, or with opaque arguments
  kUnstableOpStream,      ///< eight probes in a row, and no two consecutive ones agree
  kScalarVaries,          ///< a scalar differs between probes and nothing explains it
  kOptimizerUnsupported,  ///< an optimizer whose scalars vary and have no formula yet
  kHyperparameterChanged,  ///< a hyperparameter changes between entry and exit of the step
  kUnconsumedGraph,        ///< a result still carries a graph that backward did not consume
  kTrialDiverged,          ///< the trial of the plan gave other bits than the eager step
  kAuditDiverged,          ///< an audit of the plan gave other bits than the eager step
  kTooManyVariants,        ///< the step has more variants than Options::max_variants
  kNestedStep,             ///< the step was called inside another step
  kReplayThrew,            ///< runs of a plan threw, again and again
  kNoInterceptor,          ///< ops cannot be intercepted in this process
  kRecordingFailed,        ///< the recorder met something it does not understand
  kTrialSkipped,           ///< there was no memory for the copy that a trial takes
  kHostEffect,             ///< the step changes host state in a way that a replay cannot do again
  kHostRandom,             ///< the step draws random numbers on the host
  kOpaqueArgument,         ///< an argument is an object whose content nobody can guard
  kNondeterministicOp,     ///< an op leaves other bits each time, and Determinism is strict
};

/// The stable name of a code: "host_read", "untracked_write", ...
std::string_view name_of(RefusalCode code) noexcept;
/// What to change in the step so that it can be replayed; one sentence.
std::string_view remedy_of(RefusalCode code) noexcept;
/// The code of a stable name. Throws Error (invalid_argument) when there is none.
RefusalCode refusal_code_of(std::string_view name);

/// One reason why a step runs eagerly. A value, not an error: the step's results are right.
struct Refusal {
  RefusalCode code = RefusalCode::kRecordingFailed;
  std::string message;         ///< what, where, expected, found: one sentence without a final stop
  std::string op;              ///< "aten::item", or empty where no op is to blame
  std::int64_t op_index = -1;  ///< position in the recording, or -1
  std::string module;          ///< path of the module that ran the op, or empty
  /// The user scopes and the program's own line, joined by " > ": "train.py:41"; or empty.
  std::string place;

  std::string_view remedy() const noexcept { return remedy_of(code); }
  /// "host_read: <message> [op 17 aten::item, model.fc1, train.cc:41]. Remedy: <remedy>"
  std::string text() const;
  friend bool operator==(const Refusal&, const Refusal&) = default;
};

}  // namespace steptape
