#include "tools/report/report_data.h"

#include "tools/cli/json.h"
#include "tools/dump/dumps.h"
#include "tools/dump/info_json.h"
#include "tools/dump/optimizer_view.h"
#include "tools/dump/summary.h"
#include "trace/path.h"

namespace steptape::tools {
namespace {

Json used_constant_json(const Constant& constant) {
  return {{"path", constant.path},     {"bytes", constant.bytes},
          {"kept", constant.is_kept},  {"op", signed_of(constant.first_op)},
          {"module", constant.module}, {"scope", constant.scope}};
}

Json role_json(const RoleTotal& total) {
  return {{"role", name_of(total.role)}, {"buffers", total.buffers}, {"bytes", total.bytes}};
}

/// The modules with the paths of what holds them, which only this side can take apart.
Json modules_json(const trace::Step& step, std::size_t position) {
  Json json = ModulesView().json(step, position);
  for (Json& module : json["modules"]) {
    module["parent"] = trace::parent_path(module["path"].get_ref<const std::string&>());
  }
  return json;
}

Json reported_recording(const trace::Step& step, std::size_t position) {
  const trace::Recording& recording = step.recordings[position];
  const Summary summary = summarize(recording);
  Json json = {{"status", name_of(recording.status)},
               {"bytes", summary.bytes},
               {"parameters", summary.parameters.size()},
               {"elements", summary.elements},
               {"roles", each(summary.roles, role_json)},
               {"constants", each(summary.constants, used_constant_json)},
               {"refusals", refusals_json(recording.refusals)},
               {"ambient", facts_json(recording.ambient)},
               {"numbers", report_numbers(recording)}};
  json.update(modules_json(step, position));
  json.update(OptimizerView().json(step, position));
  json.update(GuardsView().json(step, position));
  json.update(report_ops(recording));
  return json;
}

Json file_json(const ReportedTrace& reported) {
  const trace::Trace& trace = *reported.trace;
  return {{"name", reported.name},
          {"bytes", reported.bytes},
          {"producer", facts_json(trace.producer)},
          {"run", facts_json(trace.run)},
          {"environment", facts_json(trace.environment)},
          {"state", {{"entries", trace.state.size()}, {"bytes", bytes_of_state(trace)}}}};
}

}  // namespace

Json report_data(const ReportedTrace& a, const ReportedDiff* other) {
  Json json = {{"a", file_json(a)}, {"b", nullptr}, {"diff", nullptr}};
  if (other != nullptr) {
    json["b"] = file_json(other->b);
    json["diff"] = report_diff(other->diff, *a.trace, *other->b.trace);
  }
  json["steps"] = steps_json(*a.trace, reported_recording);
  return json;
}

}  // namespace steptape::tools
