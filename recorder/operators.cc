#include "recorder/operators.h"

#include <string>

#include "live/effects.h"

namespace steptape::recorder {
namespace {

std::vector<bool> reads_of(const c10::FunctionSchema& schema, const live::Effects& effects) {
  const bool geometry = effects.is_view || effects.is_inplace_view || effects.reads_geometry_only;
  std::vector<bool> reads;
  for (std::size_t k = 0; k < schema.arguments().size(); ++k) {
    const bool replaced =
        schema.arguments()[k].is_out() || (effects.overwrites && effects.writes[k]);
    reads.push_back(!geometry && !replaced);
  }
  return reads;
}

KnownOperator describe(const c10::OperatorHandle& op, trace::Index id) {
  const auto& schema = op.schema();
  KnownOperator known;
  known.id = id;
  known.effects = &live::effects_of(op);
  known.name = schema.name();
  known.reads = reads_of(schema, *known.effects);
  for (const char* name : {"training", "train"}) {
    if (const auto position = schema.argumentIndexWithName(name)) known.training = *position;
  }
  const auto named_by = [&](live::ExceptionKind kind) -> std::int64_t {
    const live::Exception* row = live::find_exception(known.name, kind);
    if (row == nullptr) return -1;
    return schema.argumentIndexWithName(std::string(row->arguments)).value_or(-1);
  };
  known.own_draws = named_by(live::ExceptionKind::kDraws);
  known.beta = named_by(live::ExceptionKind::kUnreadAtZero);
  known.fills_by = named_by(live::ExceptionKind::kFillsByIndex);
  known.gives_each_index =
      live::find_exception(known.name, live::ExceptionKind::kGivesEachIndex) != nullptr;
  known.is_ignored = schema.name().starts_with("profiler::");
  return known;
}

}  // namespace

KnownOperator& OperatorTable::get(const c10::OperatorHandle& op) {
  const auto found = known_.find(&op.operator_name());
  if (found != known_.end()) return found->second;
  const auto id = static_cast<trace::Index>(operators_.size());
  KnownOperator known = describe(op, id);
  if (!known.is_ignored) {
    operators_.push_back(live::describe(op));
    effects_.push_back(known.effects);
  }
  return known_.emplace(&op.operator_name(), std::move(known)).first->second;
}

}  // namespace steptape::recorder
