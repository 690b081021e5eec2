#include "live/reach.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>

#include "live/effects.h"

namespace steptape::live {
namespace {

using enum Reach;
constexpr std::array kReaches = {kComputes, kOtherLibrary, kOtherValues, kStorage, kOutside};

}  // namespace

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

std::span<const Reach> reaches() noexcept { return kReaches; }

Reach reach_of(const c10::FunctionSchema& schema) {
  const auto is_plain = [](const c10::Argument& a) { return has_trace_value(*a.type()); };
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
