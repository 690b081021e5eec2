#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "recorder/context/modules.h"
#include "recorder/operators.h"
#include "trace/model.h"

namespace steptape::recorder {

/// Tells which call of which module issued each op, when all ops and the roles of buffers are
/// known. A front end that knows the calls has said so while the ops ran, those of modules that
/// backward calls too: then other ops of the step's function belong to none. Else, in this order:
///
///  - a backward op, calls told or not, belongs to the call of its forward op; one that accumulates
///    a gradient, to the call that used the parameter last;
///  - an op of an update belongs to no module: it writes a parameter, a gradient or optimizer
///    state, or, where autograd had no part in it, reads what backward or another such op made;
///  - an op that takes a parameter or module buffer belongs to the module that holds it. It begins
///    a new call where the last one has taken the same tensor as the same argument of the same
///    operator;
///  - an op between two of those belongs to the innermost module that contains both.
class Attribution {
 public:
  Attribution(trace::Recording& recording, ModuleWatch& modules, const OperatorTable& operators,
              bool calls_are_told);

  /// Backward op `op` adds to the gradient of the parameter in `parameter`.
  using Accumulations = std::unordered_map<trace::Index, trace::BufferId>;

  void run(const Accumulations& accumulations);

  /// Whether op `op` takes part in an update.
  bool is_update(trace::Index op) const { return is_update_[op]; }
  /// Buffers that op `op` writes of those it takes.
  std::vector<trace::BufferId> written_by(trace::Index op) const;

 private:
  /// A tensor as an argument of an op.
  struct Use {
    trace::Index op;  ///< in Recording::operators
    std::size_t argument;
    trace::TensorId tensor;
    friend bool operator==(const Use&, const Use&) = default;
  };

  void attribute_backward(trace::Op& op, const trace::BufferId* parameter);
  void attribute_forward(trace::Index index);
  void attribute_between(const ModuleCall& next);
  bool updates(const trace::Op& op) const;
  bool writes(const trace::Op& op, const Use& use) const;
  bool takes(const trace::Op& op, trace::BufferId buffer) const;
  /// What the op makes or writes came of backward.
  void mark_outcome(const trace::Op& op);
  ModuleCall call_of_owner(const trace::Op& op);
  void give(trace::Index index, const ModuleCall& call);

  template <typename Visit>
  void for_each_use(const trace::Op& op, Visit&& visit) const;
  trace::BufferId buffer_of(trace::TensorId tensor) const {
    return recording_.tensors[tensor].buffer;
  }

  trace::Recording& recording_;
  ModuleWatch& modules_;
  const OperatorTable& operators_;
  const bool calls_are_told_;
  std::vector<bool> is_update_;         ///< by op
  std::vector<bool> is_of_backward_;    ///< by buffer: made or written by backward or an update
  std::vector<std::vector<Use>> uses_;  ///< by module: of its newest call
  std::unordered_map<std::int64_t, ModuleCall> by_sequence_;
  std::unordered_map<trace::BufferId, ModuleCall> last_use_;  ///< of parameters
  ModuleCall before_;  ///< of the newest op that belongs to a module by what it takes
  std::vector<trace::Index> between_;  ///< ops since then
};

}  // namespace steptape::recorder
