#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace steptape {

/// What a guard looks at. docs/guards.md has a row of each name (what is checked, when, at which
/// cost, an example, its test); a test holds page and enum together. Names and numbers are stable.
enum class GuardKind : std::uint8_t {
  kNone = 0,           ///< of a verdict that holds
  kArgumentCount = 1,  ///< how many arguments the step is called with
  kArgument,           ///< the value of an argument that is not a tensor
  kPresence,           ///< tensor or none: an argument, or a gradient that is None or defined
  kTensorKind,         ///< dense and strided: not sparse, quantized, nested, a subclass
  kDevice,
  kDtype,
  kShape,  ///< dimensions and sizes
  kStride,
  kOffset,       ///< where in its storage a tracked tensor begins
  kTensorFlags,  ///< conjugate, negative and wrapped-number bits
  kRequiresGrad,
  kInference,        ///< made under inference mode, used outside it
  kAlignment,        ///< the address modulo 64
  kMemory,           ///< bytes of a storage, and which tensors share one
  kOverlap,          ///< an input over memory that the step writes
  kAlive,            ///< an object that the plan needs exists
  kHooks,            ///< hooks of a tensor, by number and identity
  kTraining,         ///< training flag of a module
  kModuleOption,     ///< a public option of a module: Dropout's p, BatchNorm's momentum
  kParameters,       ///< parameters registered with a module
  kModuleBuffers,    ///< module buffers registered with a module
  kSubModules,       ///< modules registered with a module
  kParameterGroups,  ///< groups of an optimizer and the parameters in them
  kHyperparameter,   ///< a hyperparameter that no formula follows
  kOptimizerState,   ///< which states an optimizer has and which tensors are in them
  kHostValue,        ///< a value of Session::host that no formula follows
  kFact,             ///< a value of Session::guard
  kPredicate,        ///< a condition under which the optimizer issues the recorded ops
  kAmbient,          ///< a switch of the thread or process: grad mode, threads, autocast
  kHostState,        ///< objects of another language: attributes, closures, globals
  kHostRead,         ///< a value that the step read from a tensor, met in mid-run
  kRunShape,         ///< the shape of an op's result, met in mid-run
  kProcessGroup,     ///< a group of processes that collectives of the step go through
  kException,        ///< that nothing throws in a run, met in mid-run
};

/// The stable name of a kind: "shape", "module_option", ...; "none" of kNone.
std::string_view name_of(GuardKind kind) noexcept;
/// All kinds but kNone, in order.
std::span<const GuardKind> guard_kinds() noexcept;

}  // namespace steptape
