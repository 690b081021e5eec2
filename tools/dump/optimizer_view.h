#pragma once

#include <string>
#include <vector>

#include "tools/cli/json.h"
#include "tools/dump/recording_view.h"
#include "trace/model.h"

namespace steptape::tools {

struct StateItem {
  std::string key;                      ///< "exp_avg"
  const trace::Value* value = nullptr;  ///< null: missing, though other parameters have it
};

/// A parameter of an optimizer with what the optimizer keeps for it.
struct ParameterState {
  std::string path;
  trace::Index group = trace::kNone;  ///< kNone: it has state, but stands in no group
  bool is_tracked = false;
  trace::TensorId tensor = trace::kNoTensor;
  bool has_state = false;
  std::vector<StateItem> items;  ///< where it has state: every key of the optimizer's
};

/// Parameters in the order of the groups, then those that have state alone; one in two groups
/// stands twice. The table refers to `recording`, which must outlive it.
std::vector<ParameterState> states_of(const trace::Recording& recording,
                                      const trace::OptimizerLayout& optimizer);

/// `steptape dump --optimizer`: groups, hyperparameters to the bit, and the state of each
/// parameter.
class OptimizerView : public RecordingView {
 public:
  std::string text(const trace::Step& step, std::size_t position) const override;
  Json json(const trace::Step& step, std::size_t position) const override;
};

}  // namespace steptape::tools
