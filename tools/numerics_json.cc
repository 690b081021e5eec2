#include "tools/numerics_json.h"

#include "trace/numeric_words.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

Json entered_json(const trace::NumericDifferences& found, const trace::Recording& a) {
  Json json = Json::array();
  for (const trace::EnteredBuffer& buffer : found.entered) {
    json.push_back({{"path", a.buffers[buffer.a].path}, {"noisy", buffer.is_noisy}});
  }
  return json;
}

Json modules_json(const trace::NumericDifferences& found, const trace::Recording& a) {
  Json json = Json::array();
  for (const trace::NumericStat& stat : stats_of(found, a)) {
    json.push_back({{"module", stat.module},
                    {"origins", stat.origins},
                    {"receivers", stat.receivers},
                    {"unknown", stat.unknown},
                    {"noisy", stat.noisy}});
  }
  return json;
}

}  // namespace

Json numeric_op_json(const trace::NumericOp& op, const trace::OpStream& a,
                     const trace::OpStream& b) {
  const trace::Recording& recording = a.recording();
  const trace::Op& of_a = recording.ops[op.a];
  const std::string scope = of_a.scope == trace::kNone ? "" : recording.scopes[of_a.scope];
  Json json = {{"a", op.a},
               {"b", op.b},
               {"standing", name_of(op.standing)},
               {"noisy", op.is_noisy},
               {"operator", recording.operator_of(of_a).full_name()},
               {"call", a.call_of(of_a)},
               {"phase", of_a.phase == trace::Phase::kForward ? "forward" : "backward"},
               {"scope", scope},
               {"line", trace::line_of(scope)},
               {"input", nullptr}};
  const trace::InputWords input = words_of_input(op, a, b);
  if (!input.name.empty()) json["input"] = {{"name", input.name}, {"a", input.a}, {"b", input.b}};
  return json;
}

Json numerics_json(const trace::NumericDifferences& found, const trace::OpStream& a,
                   const trace::OpStream& b) {
  if (!found.is_compared()) return {{"compared", nullptr}, {"not_compared", found.not_compared}};
  Json ops = Json::array();
  for (const trace::NumericOp& op : found.ops) ops.push_back(numeric_op_json(op, a, b));
  return {{"compared", found.compared},
          {"origins", found.count(trace::NumericStanding::kOrigin)},
          {"receivers", found.count(trace::NumericStanding::kReceiver)},
          {"unknown", found.count(trace::NumericStanding::kUnknown)},
          {"noisy", found.noisy()},
          {"entered", entered_json(found, a.recording())},
          {"modules", modules_json(found, a.recording())},
          {"ops", ops}};
}

}  // namespace steptape::tools
