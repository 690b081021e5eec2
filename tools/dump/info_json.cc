#include "tools/dump/info_json.h"

#include "tools/dump/summary.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

Json roles_json(const Summary& summary) {
  Json roles = Json::object();
  for (const RoleTotal& total : summary.roles) {
    roles[std::string(name_of(total.role))] = {{"buffers", total.buffers}, {"bytes", total.bytes}};
  }
  return roles;
}

Json parameters_json(const trace::Recording& recording, const Summary& summary) {
  Json parameters = Json::array();
  for (const trace::Tracked* tracked : summary.parameters) {
    const trace::Tensor& tensor = recording.tensors[tracked->tensor];
    parameters.push_back({{"path", tracked->path},
                          {"dtype", name_of(tensor.dtype)},
                          {"sizes", tensor.sizes},
                          {"requires_grad", tracked->requires_grad}});
  }
  return parameters;
}

Json optimizers_json(const trace::Recording& recording) {
  Json optimizers = Json::array();
  for (const trace::OptimizerLayout& optimizer : recording.optimizers) {
    Json groups = Json::array();
    for (const trace::ParameterGroup& group : optimizer.groups) {
      Json hyperparameters = Json::object();
      for (const trace::NamedValue& named : group.hyperparameters) {
        hyperparameters[named.name] = trace::words_of(named.value);
      }
      groups.push_back({{"parameters", group.parameters}, {"hyperparameters", hyperparameters}});
    }
    optimizers.push_back({{"path", optimizer.path}, {"type", optimizer.type}, {"groups", groups}});
  }
  return optimizers;
}

Json constants_json(const Summary& summary) {
  Json constants = Json::array();
  for (const Constant& constant : summary.constants) {
    Json json = {{"path", constant.path},     {"bytes", constant.bytes}, {"kept", constant.is_kept},
                 {"module", constant.module}, {"scope", constant.scope}, {"first_op", nullptr}};
    if (constant.first_op != trace::kNone) json["first_op"] = constant.first_op;
    constants.push_back(std::move(json));
  }
  return constants;
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
          {"optimizers", optimizers_json(recording)},
          {"constants", constants_json(summary)},
          {"refusals", refusals_json(recording.refusals)}};
}

}  // namespace

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json facts_json(const std::vector<trace::Fact>& facts) {
  Json json = Json::object();
  for (const trace::Fact& fact : facts) json[fact.name] = fact.value;
  return json;
}

Json refusals_json(const std::vector<Refusal>& refusals) {
  Json json = Json::array();
  for (const Refusal& refusal : refusals) {
    json.push_back({{"code", name_of(refusal.code)},
                    {"message", refusal.message},
                    {"op", refusal.op},
                    {"op_index", refusal.op_index},
                    {"module", refusal.module},
                    {"place", refusal.place},
                    {"remedy", refusal.remedy()}});
  }
  return json;
}

Json info_json(const std::filesystem::path& path, const trace::Trace& trace) {
  Json steps = Json::array();
  for (const trace::Step& step : trace.steps) {
    Json recordings = Json::array();
    for (const trace::Recording& recording : step.recordings) {
      recordings.push_back(recording_json(recording));
    }
    steps.push_back({{"name", step.name}, {"place", step.place}, {"recordings", recordings}});
  }
  return {{"file", path.string()},
          {"bytes", std::filesystem::file_size(path)},
          {"producer", facts_json(trace.producer)},
          {"run", facts_json(trace.run)},
          {"environment", facts_json(trace.environment)},
          {"state",
           {{"saved", !trace.state.empty()},
            {"entries", trace.state.size()},
            {"bytes", bytes_of_state(trace)}}},
          {"steps", steps}};
}

}  // namespace steptape::tools
