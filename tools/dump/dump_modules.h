#pragma once

#include "tools/dump/recording_view.h"

namespace steptape::tools {

/// `steptape dump --modules`: the tree of modules, with the ops, parameters and module buffers of
/// each.
class ModulesView : public RecordingView {
 public:
  std::string text(const trace::Step& step, std::size_t position) const override;
  nlohmann::ordered_json json(const trace::Step& step, std::size_t position) const override;
};

}  // namespace steptape::tools
