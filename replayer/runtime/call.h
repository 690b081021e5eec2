#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Does a call of a run in place of the dispatcher: the op's computation, with all that ATen works
/// out anew in each call (dispatch, checks, shapes, iterators) worked out when the plan was made.
/// Leaves the bits that the op leaves.
class Kernel {
 public:
  Kernel() = default;
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Reads and writes the plan's tensors, wherever they lie now. Throws what the op throws.
  virtual void run() = 0;

  /// What it reads lies elsewhere, modulo 64, than ever before: finds out how it leaves there what
  /// the op leaves.
  virtual void adapt() {}
};

/// One call of a run, everything about it known beforehand.
struct Call {
  c10::OperatorHandle callee;
  std::vector<c10::IValue> arguments = {};
  /// Results of the call that bring new memory, in the order of the op's flattened outputs.
  std::vector<trace::TensorId> outputs = {};
  bool adopts = false;
  std::vector<trace::TensorId> placed = {};  ///< results in memory that is there before the call
  std::vector<trace::BufferId> makes = {};   ///< of that memory, what is allocated for it
  bool copies = false;  ///< where there is no kernel: its own results are copied to `placed`
  std::vector<trace::BufferId> release = {};  ///< adopted buffers last used here
  trace::Index op = 0;
  bool may_throw = true;  ///< because of the bytes it reads
  bool is_once = false;   ///< done in the first run alone
  /// Of a collective: which argument is the group, and its name. A plan keeps no group alive.
  struct Group {
    std::size_t argument;
    std::string name;
  };
  std::optional<Group> group = {};
  /// Its place in the order of the run: `op`, of a read the op after which it comes, or -1 of what
  /// is done once.
  std::int64_t at = 0;
  /// Position in Recording::reads of an op that gives the host a value, or kNone.
  trace::Index read = trace::kNone;
  std::unique_ptr<Kernel> kernel = {};  ///< does the call; null: the dispatcher does
  std::string_view no_kernel = {};      ///< why
};

/// What an operator is called with. A list of indices is a copy: it is handed on by reference, and
/// an operator may write it (aten::_unsafe_masked_index does).
inline void put_arguments(const Call& call, std::vector<c10::IValue>& stack) {
  stack.assign(call.arguments.begin(), call.arguments.end());
  for (c10::IValue& argument : stack) {
    if (argument.isOptionalTensorList()) argument = argument.toOptionalTensorList().copy();
  }
}

/// "op 1 `aten::_local_scalar_dense`".
inline std::string name_of(const Call& call) {
  return "op " + std::to_string(call.op) + " `" + call.callee.schema().name() + "`";
}

}  // namespace steptape::replayer
