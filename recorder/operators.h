#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <unordered_map>
#include <vector>

#include "live/operators.h"
#include "trace/model.h"

namespace steptape::recorder {

/// What every call of one operator has in common.
struct KnownOperator {
  trace::Index id = 0;  ///< in Recording::operators
  const live::Effects* effects = nullptr;
  std::string name;             ///< "aten::add_"
  std::vector<bool> reads;      ///< arguments whose bytes it looks at
  std::int64_t training = -1;   ///< position of a bool argument that switches training on
  std::int64_t own_draws = -1;  ///< position of how likely it drops, drawn from its own state
  std::int64_t beta = -1;  ///< position of a number; where it is 0, the first argument is unread
  std::int64_t fills_by = -1;     ///< position of an index, or a list of one
  bool gives_each_index = false;  ///< see live::ExceptionKind::kGivesEachIndex
  std::uint32_t calls = 0;        ///< in this recording so far
  bool is_ignored = false;        ///< bookkeeping of a profiler, no part of the step
};

/// Operators by handle. Fills Recording::operators.
class OperatorTable {
 public:
  explicit OperatorTable(std::vector<trace::Operator>& operators) : operators_(operators) {}
  KnownOperator& get(const c10::OperatorHandle& op);
  /// Of an operator in Recording::operators.
  const live::Effects& effects_of(trace::Index op) const { return *effects_[op]; }

 private:
  std::vector<trace::Operator>& operators_;
  std::vector<const live::Effects*> effects_;  ///< at the same positions
  std::unordered_map<const c10::OperatorName*, KnownOperator> known_;
};

}  // namespace steptape::recorder
