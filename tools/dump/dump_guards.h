#pragma once

#include "tools/dump/recording_view.h"

namespace steptape::tools {

/// `steptape dump --guards`: under which conditions the plans of a trace may run.
class GuardsView : public RecordingView {
 public:
  std::string text(const trace::Step& step, std::size_t position) const override;
  nlohmann::ordered_json json(const trace::Step& step, std::size_t position) const override;
};

}  // namespace steptape::tools
