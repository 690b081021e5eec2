#include "tools/dump/info_json.h"

#include "tools/cli/json.h"
#include "tools/dump/summary.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

Json roles_json(const Summary& summary) {
  Json roles = Json::object();
  for (const RoleTotal& total : summary.roles) {
    roles[std::string(name_of(total.role))] = {{"buffers", total.buffers}, {"bytes", total.bytes}};
  }
  return roles;
}

Json parameters_json(const trace::Recording& recording, const Summary& summary) {
  return each(summary.parameters, [&recording](const trace::Tracked* tracked) {
    const trace::Tensor& tensor = recording.tensors[tracked->tensor];
    return Json{{"path", tracked->path},
                {"dtype", name_of(tensor.dtype)},
                {"sizes", tensor.sizes},
                {"requires_grad", tracked->requires_grad}};
  });
}

Json brief_optimizer_json(const trace::OptimizerLayout& optimizer) {
  const auto group_json = [](const trace::ParameterGroup& group) {
    return Json{{"parameters", group.parameters},
                {"hyperparameters", by_name(group.hyperparameters, trace::words_of)}};
  };
  return {{"path", optimizer.path},
          {"type", optimizer.type},
          {"groups", each(optimizer.groups, group_json)}};
}

Json constant_json(const Constant& constant) {
  return {
      {"path", constant.path},    {"bytes", constant.bytes},
      {"kept", constant.is_kept}, {"module", constant.module},
      {"scope", constant.scope},  {"first_op", number_or_null(constant.first_op, trace::kNone)}};
}

Json recording_json(const trace::Recording& recording) {
  const Summary summary = summarize(recording);
  return {{"status", name_of(recording.status)},
          {"call", recording.call == 0 ? Json() : Json(recording.call)},
          {"has_digests", !recording.op_digests.empty()},
          {"has_times", !recording.op_ns.empty()},
          {"ops", recording.ops.size()},
          {"backward_ops", summary.backward_ops},
          {"operators", recording.operators.size()},
          {"tensors", recording.tensors.size()},
          {"buffers", recording.buffers.size()},
          {"bytes", summary.bytes},
          {"roles", roles_json(summary)},
          {"parameters", parameters_json(recording, summary)},
          {"optimizers", each(recording.optimizers, brief_optimizer_json)},
          {"constants", each(summary.constants, constant_json)},
          {"refusals", refusals_json(recording.refusals)}};
}

}  // namespace

Json facts_json(const std::vector<trace::Fact>& facts) { return by_name(facts, std::identity()); }

Json finding_json(const trace::Finding& finding) {
  return {{"path", finding.path}, {"expected", finding.expected}, {"found", finding.found}};
}

Json refusals_json(const std::vector<Refusal>& refusals) {
  return each(refusals, [](const Refusal& refusal) {
    return Json{
        {"code", name_of(refusal.code)}, {"message", refusal.message}, {"op", refusal.op},
        {"op_index", refusal.op_index},  {"module", refusal.module},   {"place", refusal.place},
        {"remedy", refusal.remedy()}};
  });
}

Json info_json(const std::filesystem::path& path, const trace::Trace& trace) {
  return {{"file", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"producer", facts_json(trace.producer)},
          {"run", facts_json(trace.run)},
          {"environment", facts_json(trace.environment)},
          {"state",
           {{"saved", !trace.state.empty()},
            {"entries", trace.state.size()},
            {"bytes", bytes_of_state(trace)}}},
          {"steps", steps_json(trace, [](const trace::Step& step, std::size_t position) {
             return recording_json(step.recordings[position]);
           })}};
}

Json steps_json(const trace::Trace& trace,
                const std::function<Json(const trace::Step& step, std::size_t position)>& convert) {
  return each(trace.steps, [&convert](const trace::Step& step) {
    Json recordings = Json::array();
    for (std::size_t i = 0; i < step.recordings.size(); ++i) recordings.push_back(convert(step, i));
    return Json{{"name", step.name}, {"place", step.place}, {"recordings", recordings}};
  });
}

}  // namespace steptape::tools
