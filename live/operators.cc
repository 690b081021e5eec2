#include "live/operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <unordered_map>

#include "live/effects.h"
#include "trace/operators.h"

namespace steptape::live {
namespace {

bool is_tensor_type(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::OptionalType:
      return is_tensor_type(*type.expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType:
      return is_tensor_type(*type.expectRef<c10::ListType>().getElementType());
    default:
      return false;
  }
}

bool is_annotated_write(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Whether the comma-separated list `names` holds `name`.
bool holds(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const auto comma = std::min(names.find(','), names.size());
    if (names.substr(0, comma) == name) return true;
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return false;
}

void set_writes(const c10::FunctionSchema& schema, Effects& effects) {
  const Exception* row = find_exception(schema.name(), ExceptionKind::kWrites);
  for (const c10::Argument& argument : schema.arguments()) {
    const bool annotated = is_annotated_write(argument);
    const bool known = row != nullptr && is_tensor_type(*argument.type()) &&
                       (row->arguments.empty() || holds(row->arguments, argument.name()));
    effects.writes.push_back((annotated || known) && !effects.is_inplace_view);
    effects.writes_unannotated.push_back(known && !annotated);
  }
}

bool is_view(const c10::FunctionSchema& schema, const Effects& effects) {
  const bool writes = std::ranges::count(effects.writes, true) > 0;
  if (writes || schema.returns().empty() || effects.is_inplace_view) return false;
  if (find_exception(schema.name(), ExceptionKind::kAlias) != nullptr) return true;
  return std::ranges::all_of(schema.returns(), [](const c10::Argument& result) {
    return is_tensor_type(*result.type()) && result.alias_info() != nullptr;
  });
}

bool is_host_read(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (op.hasTag(at::Tag::data_dependent_output)) return true;
  if (find_exception(schema.name(), ExceptionKind::kGeometryQuestion) != nullptr) return false;
  const auto tensor = [](const c10::Argument& a) { return is_tensor_type(*a.type()); };
  const auto host = [](const c10::Argument& a) {
    return !is_tensor_type(*a.type()) && has_trace_value(*a.type());
  };
  return std::ranges::any_of(schema.arguments(), tensor) &&
         std::ranges::any_of(schema.returns(), host);
}

bool may_throw_on_data(const c10::OperatorHandle& op, const Effects& effects) {
  const auto& schema = op.schema();
  if (find_exception(schema.name(), ExceptionKind::kThrowsOnData) != nullptr) return true;
  // Division with a rounding mode and powers of tensors are integer arithmetic for integers.
  if (schema.overload_name().find("mode") != std::string::npos) return true;
  if (schema.name().starts_with("aten::pow") && schema.overload_name() != "Tensor_Scalar") {
    return true;
  }
  if (effects.is_view || effects.is_inplace_view || effects.reads_geometry_only) return false;
  return !op.hasTag(at::Tag::pointwise) && !effects.makes_unwritten &&
         find_exception(schema.name(), ExceptionKind::kNeverThrows) == nullptr;
}

Effects derive(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const auto listed = [&](ExceptionKind kind) {
    return find_exception(schema.name(), kind) != nullptr;
  };
  using trace::is_exception;
  using trace::OpException;
  Effects effects;
  effects.is_inplace_view =
      op.hasTag(at::Tag::inplace_view) && !listed(ExceptionKind::kChangesStorage);
  set_writes(schema, effects);
  effects.is_view = is_view(schema, effects);
  effects.makes_unwritten = is_exception(schema.name(), OpException::kUnwritten);
  effects.reads_geometry_only = is_exception(schema.name(), OpException::kGeometryOnly);
  effects.overwrites = is_exception(schema.name(), OpException::kOverwrites);
  effects.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  effects.is_host_read = is_host_read(op);
  effects.is_dynamic_shape =
      op.hasTag(at::Tag::dynamic_output_shape) || listed(ExceptionKind::kDynamicShape);
  effects.may_throw_on_data = may_throw_on_data(op, effects);
  effects.reach = reach_of(schema);
  return effects;
}

trace::Operator print(const c10::OperatorHandle& op) {
  std::ostringstream schema;
  schema << op.schema();
  return {op.schema().name(), op.schema().overload_name(), schema.str()};
}

/// What was worked out once for each operator; entries never move and never go.
template <typename Entry>
class Cache {
 public:
  explicit Cache(Entry (*derive)(const c10::OperatorHandle&)) : derive_(derive) {}

  const Entry& get(const c10::OperatorHandle& op) {
    {
      std::shared_lock lock(mutex_);
      if (auto found = entries_.find(op.operator_name()); found != entries_.end()) {
        return *found->second;
      }
    }
    auto derived = std::make_unique<const Entry>(derive_(op));
    std::unique_lock lock(mutex_);
    return *entries_.try_emplace(op.operator_name(), std::move(derived)).first->second;
  }

 private:
  Entry (*derive_)(const c10::OperatorHandle&);
  std::shared_mutex mutex_;
  std::unordered_map<c10::OperatorName, std::unique_ptr<const Entry>> entries_;
};

}  // namespace

const Effects& effects_of(const c10::OperatorHandle& op) {
  static Cache<Effects> cache(&derive);
  return cache.get(op);
}

std::vector<bool> arguments_that_may_follow(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  const Effects& effects = effects_of(op);
  const auto holds = [](const c10::TypePtr& type, c10::TypeKind kind) {
    if (type->kind() == kind) return true;
    const auto contained = type->containedTypes();
    return !contained.empty() && contained[0]->kind() == kind;
  };
  const bool keeps_shapes = !effects.is_view && !effects.is_inplace_view &&
                            !find_exception(op.schema().name(), ExceptionKind::kSizesByScalar);
  std::vector<bool> result;
  for (const c10::Argument& argument : arguments) {
    result.push_back(keeps_shapes && (holds(argument.type(), c10::TypeKind::NumberType) ||
                                      holds(argument.type(), c10::TypeKind::FloatType)));
  }
  return result;
}

std::optional<c10::OperatorHandle> find_operator(const trace::Operator& op) {
  return c10::Dispatcher::singleton().findSchema({op.name, op.overload});
}

trace::Operator describe(const c10::OperatorHandle& op) {
  // Printing a schema costs more than a small op does.
  static Cache<trace::Operator> cache(&print);
  return cache.get(op);
}

using enum Reach;

bool has_trace_value(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return has_trace_value(*type.expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType:
      return has_trace_value(*type.expectRef<c10::ListType>().getElementType());
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return true;
    default:
      return false;
  }
}

Reach reach_of(const c10::FunctionSchema& schema) {
  const auto is_plain = [](const c10::Argument& a) { return has_trace_value(*a.type()); };
  if (find_exception(schema.name(), ExceptionKind::kExchanges) != nullptr) return kExchanges;
  if (!schema.name().starts_with("aten::")) return kOtherLibrary;
  if (find_exception(schema.name(), ExceptionKind::kSideEffect) != nullptr) return kOutside;
  if (find_exception(schema.name(), ExceptionKind::kChangesStorage) != nullptr) return kStorage;
  const bool has_plain_values = !schema.is_vararg() && !schema.is_varret() &&
                                std::ranges::all_of(schema.arguments(), is_plain) &&
                                std::ranges::all_of(schema.returns(), is_plain);
  return has_plain_values ? kComputes : kOtherValues;
}

std::string_view words_of(Reach reach) noexcept {
  switch (reach) {
    case kComputes:
      return "computes";
    case kExchanges:
      return "exchanges tensors with other processes";
    case kOtherLibrary:
      return "is of another library than aten";
    case kOtherValues:
      return "takes or gives what no trace can hold";
    case kStorage:
      return "changes the memory that a tensor lies on";
    case kOutside:
      return "acts on something that is not a tensor";
  }
  return "unknown";
}

}  // namespace steptape::live
