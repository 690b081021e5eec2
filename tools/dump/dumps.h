#pragma once

#include "tools/cli/json.h"
#include "tools/dump/recording_view.h"
#include "trace/model.h"
#include "trace/text/text.h"

namespace steptape::tools {

/// `steptape dump --guards`: under which conditions the plans of a trace may run.
class GuardsView : public RecordingView {
 public:
  std::string text(const trace::Step& step, std::size_t position) const override;
  Json json(const trace::Step& step, std::size_t position) const override;
};

/// What `steptape dump --json` prints: the trace, with values as the text form shows them.
Json dump_json(const trace::Trace& trace, trace::Contents contents);
Json leaves_json(const trace::Recording& recording);
Json formulas_json(const trace::Recording& recording);
Json predicates_json(const trace::Recording& recording);
Json advances_json(const trace::Recording& recording);
Json reads_json(const trace::Recording& recording);

/// `steptape dump --modules`: the tree of modules, with the ops, parameters and module buffers of
/// each.
class ModulesView : public RecordingView {
 public:
  std::string text(const trace::Step& step, std::size_t position) const override;
  Json json(const trace::Step& step, std::size_t position) const override;
};

}  // namespace steptape::tools
