#include "tools/diff/numerics_json.h"

#include "diff/numerics/numeric_words.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

Json entered_json(const diff::NumericDifferences& found, const trace::Recording& a) {
  Json json = Json::array();
  for (const diff::EnteredBuffer& buffer : found.entered) {
    json.push_back({{"path", a.buffers[buffer.a].path}, {"noisy", buffer.is_noisy}});
  }
  return json;
}

Json modules_json(const diff::NumericDifferences& found, const trace::Recording& a) {
  Json json = Json::array();
  for (const diff::NumericStat& stat : stats_of(found, a)) {
    json.push_back({{"module", stat.module},
                    {"origins", stat.origins},
                    {"receivers", stat.receivers},
                    {"unknown", stat.unknown},
                    {"noisy", stat.noisy}});
  }
  return json;
}

}  // namespace

Json numeric_op_json(const diff::NumericOp& op, const diff::OpStream& a, const diff::OpStream& b) {
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
               {"line", diff::line_of(scope)},
               {"input", nullptr}};
  const diff::InputWords input = words_of_input(op, a, b);
  if (!input.name.empty()) json["input"] = {{"name", input.name}, {"a", input.a}, {"b", input.b}};
  return json;
}

Json numerics_json(const diff::NumericDifferences& found, const diff::OpStream& a,
                   const diff::OpStream& b) {
  if (!found.is_compared()) return {{"compared", nullptr}, {"not_compared", found.not_compared}};
  Json ops = Json::array();
  for (const diff::NumericOp& op : found.ops) ops.push_back(numeric_op_json(op, a, b));
  return {{"compared", found.compared},
          {"origins", found.count(diff::NumericStanding::kOrigin)},
          {"receivers", found.count(diff::NumericStanding::kReceiver)},
          {"unknown", found.count(diff::NumericStanding::kUnknown)},
          {"noisy", found.noisy()},
          {"entered", entered_json(found, a.recording())},
          {"modules", modules_json(found, a.recording())},
          {"ops", ops}};
}

}  // namespace steptape::tools
