#pragma once

#include "tools/dump/recording_view.h"

namespace steptape::tools {

/// `steptape dump --optimizer`: groups, hyperparameters to the bit, and the state of each
/// parameter.
class OptimizerView : public RecordingView {
 public:
  std::string text(const trace::Step& step, std::size_t position) const override;
  nlohmann::ordered_json json(const trace::Step& step, std::size_t position) const override;
};

}  // namespace steptape::tools
