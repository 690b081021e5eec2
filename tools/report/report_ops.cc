#include <map>

#include "diff/op_stream.h"
#include "diff/sections.h"
#include "tools/cli/json.h"
#include "tools/dump/summary.h"
#include "tools/report/report_data.h"
#include "trace/operators.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

/// Names by number, each once, in the order in which they are met.
class Names {
 public:
  std::size_t of(const std::string& name) {
    const auto [found, is_new] = positions_.try_emplace(name, names_.size());
    if (is_new) names_.push_back(name);
    return found->second;
  }
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::map<std::string, std::size_t> positions_;
  std::vector<std::string> names_;
};

Json value_json(const trace::Value& value) {
  if (std::holds_alternative<trace::None>(value.data)) return nullptr;
  if (const auto* tensor = std::get_if<trace::TensorRef>(&value.data)) return signed_of(tensor->id);
  if (const auto* list = std::get_if<trace::List>(&value.data)) return each(*list, value_json);
  return trace::words_of(value);
}

Json operator_json(const trace::Operator& op) {
  return {{"name", op.full_name()},
          {"schema", op.schema},
          {"arguments", each(trace::arguments_of(op.schema), &trace::SchemaArgument::name)}};
}

std::string flags_of(const trace::Tensor& tensor) {
  std::string flags;
  if (tensor.conj) flags += " conj";
  if (tensor.neg) flags += " neg";
  if (tensor.wrapped_number) flags += " number";
  return flags.empty() ? flags : flags.substr(1);
}

/// Strides and flags stand only where they are not what most tensors have.
Json tensors_json(const trace::Recording& recording) {
  Names dtypes;
  Json dtype = Json::array();
  Json strides = Json::object();
  Json flags = Json::object();
  for (std::size_t i = 0; i < recording.tensors.size(); ++i) {
    const trace::Tensor& tensor = recording.tensors[i];
    dtype.push_back(dtypes.of(std::string(name_of(tensor.dtype))));
    if (!tensor.is_contiguous()) strides[std::to_string(i)] = tensor.strides;
    if (const std::string words = flags_of(tensor); !words.empty()) {
      flags[std::to_string(i)] = words;
    }
  }
  return {{"dtypes", dtypes.all()},
          {"buffer", each(recording.tensors, &trace::Tensor::buffer)},
          {"dtype", dtype},
          {"sizes", each(recording.tensors, &trace::Tensor::sizes)},
          {"offset", each(recording.tensors, &trace::Tensor::offset)},
          {"strides", strides},
          {"flags", flags}};
}

Json buffers_json(const trace::Recording& recording) {
  const std::vector<diff::Lifetime> lifetimes = diff::lifetimes_of(recording);
  Names roles;
  Names devices;
  Json columns = {{"roles", nullptr},       {"devices", nullptr},      {"bytes", Json::array()},
                  {"role", Json::array()},  {"device", Json::array()}, {"path", Json::object()},
                  {"first", Json::array()}, {"last", Json::array()}};
  for (std::size_t i = 0; i < recording.buffers.size(); ++i) {
    const trace::Buffer& buffer = recording.buffers[i];
    columns["bytes"].push_back(buffer.bytes);
    columns["role"].push_back(roles.of(std::string(name_of(buffer.role))));
    columns["device"].push_back(devices.of(text_of(buffer.device)));
    if (!buffer.path.empty()) columns["path"][std::to_string(i)] = buffer.path;
    columns["first"].push_back(signed_of(lifetimes[i].first));
    columns["last"].push_back(signed_of(lifetimes[i].last));
  }
  columns["roles"] = roles.all();
  columns["devices"] = devices.all();
  return columns;
}

Json op_columns(const trace::Recording& recording) {
  Json columns;
  for (const char* name :
       {"operator", "part", "module", "call", "scope", "sequence", "inputs", "outputs"}) {
    columns[name] = Json::array();
  }
  const std::vector<StepPart> parts = parts_of(recording);
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const trace::Op& op = recording.ops[i];
    columns["operator"].push_back(op.op);
    columns["part"].push_back(static_cast<int>(parts[i]));
    columns["module"].push_back(signed_of(op.module));
    columns["call"].push_back(op.call);
    columns["scope"].push_back(signed_of(op.scope));
    columns["sequence"].push_back(op.sequence);
    columns["inputs"].push_back(each(op.inputs, value_json));
    columns["outputs"].push_back(each(op.outputs, value_json));
  }
  columns["ns"] = recording.op_ns;
  return columns;
}

}  // namespace

Json report_ops(const trace::Recording& recording) {
  return {{"operators", each(recording.operators, operator_json)},
          {"scopes", recording.scopes},
          {"tensors", tensors_json(recording)},
          {"buffers", buffers_json(recording)},
          {"ops", op_columns(recording)}};
}

}  // namespace steptape::tools
