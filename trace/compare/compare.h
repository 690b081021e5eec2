#pragma once

#include <optional>
#include <string>

#include "trace/model.h"

namespace steptape::trace {

/// In which respect two recordings differ, from the most to the least fundamental.
enum class DifferenceKind {
  kOpStream,        ///< another op, or another tensor as its argument
  kGeometry,        ///< another buffer size, shape, stride, dtype or device
  kRole,            ///< another role or path of a buffer
  kScalar,          ///< another literal
  kHostRead,        ///< an op gave the host another value
  kHostTensor,      ///< other bytes in a tensor that the host made inside the step
  kOutsideTensor,   ///< other bytes in an outside tensor of role constant
  kHyperparameter,  ///< another hyperparameter or optimizer layout
  kTracked,         ///< other tracked tensors, gradients, modules or training flags
  kAmbient,         ///< another ambient fact
  kSeek,            ///< other generator seeks
  kEffect,          ///< another effect on the host
};

struct Difference {
  DifferenceKind kind;
  Index op = kNone;      ///< the first op that differs, where one does
  std::string path;      ///< "ops[17].inputs[1]", "buffers[3].bytes", "tracked[model.fc1.weight]"
  std::string expected;  ///< in the first recording
  std::string found;     ///< in the second
};

/// Whether two recordings call the same operators on the same tensors, whatever their shapes and
/// scalars.
bool same_op_stream(const Recording& a, const Recording& b);

/// The first difference between two recordings of one step, op streams first; none when they agree.
/// They agree when a plan made from one does what the other did: `status`, `refusals`, bytes of
/// inputs and carried buffers, input ranges and address remainders of inputs are left out; so are
/// an op's module, call, scope, phase and sequence number, and host numbers of optimizer state,
/// such as a step count, which move from step to step. Both recordings must be valid.
std::optional<Difference> first_difference(const Recording& a, const Recording& b);

/// How numbers that the caller passes, and host values, are compared.
enum class Numbers {
  kEqual,
  kAny,  ///< they may differ: a formula may account for it
};

/// Whether two recordings were entered in the same way, so that one plan could serve both: inputs
/// by geometry and value, tracked tensors, gradients None or defined, training flags,
/// predicates, hyperparameters that have no formulas, ambient facts. What the step then did is not
/// looked at: first_difference does that.
bool same_entry(const Recording& a, const Recording& b, Numbers numbers = Numbers::kEqual);

}  // namespace steptape::trace
