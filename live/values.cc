#include "live/values.h"

#include <c10/util/StringUtil.h>

#include "live/collectives.h"
#include "live/tensors.h"
#include "steptape/error.h"

namespace steptape::live {
namespace {

using TensorId = std::function<trace::TensorId(const at::Tensor&)>;
using GeneratorPath = std::function<std::string(const at::Generator&)>;
using TensorOf = std::function<at::Tensor(trace::TensorId)>;
using GeneratorOf = std::function<at::Generator(const std::string&)>;

trace::Value list_of(const c10::IValue& value, const TensorId& tensor_id,
                     const GeneratorPath& generator_path) {
  const auto items = value.toListRef();
  if (value.isIntList()) {
    trace::IntList ints;
    ints.reserve(items.size());
    for (const c10::IValue& item : items) ints.push_back(item.toInt());
    return {std::move(ints)};
  }
  trace::List list;
  list.reserve(items.size());
  for (const c10::IValue& item : items) list.push_back(value_of(item, tensor_id, generator_path));
  return {std::move(list)};
}

[[noreturn]] void mismatch(const char* found, const c10::Type& type) {
  throw Error(ErrorCode::kDataLoss,
              c10::str("an argument of type ", type.str(), " cannot be ", found, " in the trace"));
}

template <typename T>
const T& expect(const trace::Value& value, const c10::Type& type) {
  const T* found = std::get_if<T>(&value.data);
  if (found == nullptr) mismatch("a value of another kind", type);
  return *found;
}

c10::IValue number_of(const trace::Value& value, const c10::Type& type) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return *integer;
  if (const auto* real = std::get_if<trace::Real>(&value.data)) return real->value;
  const auto& number = expect<trace::Complex>(value, type);
  return c10::complex<double>(number.real.value, number.imag.value);
}

c10::IValue ivalue_list(const trace::Value& value, const c10::ListType& type,
                        const TensorOf& tensor, const GeneratorOf& generator) {
  const c10::TypePtr& element = type.getElementType();
  const bool ints =
      element->kind() == c10::TypeKind::IntType || element->kind() == c10::TypeKind::SymIntType;
  if (const auto* list = std::get_if<trace::IntList>(&value.data)) {
    // An empty list of any element type may have been written as one of ints.
    if (ints) return c10::List<std::int64_t>(c10::ArrayRef<std::int64_t>(*list));
    if (!list->empty()) mismatch("a list of ints", type);
    return c10::impl::GenericList(element);
  }
  const auto& items = expect<trace::List>(value, type);
  c10::impl::GenericList list(ints ? c10::TypePtr(c10::IntType::get()) : element);
  list.reserve(items.size());
  for (const trace::Value& item : items) {
    list.push_back(ivalue_of(item, *element, tensor, generator));
  }
  return list;
}

}  // namespace

trace::Value value_of(const c10::IValue& value, const TensorId& tensor_id,
                      const GeneratorPath& generator_path) {
  if (value.isTensor()) return {trace::TensorRef{tensor_id(value.toTensor())}};
  if (value.isNone()) return {trace::None{}};
  if (value.isInt()) return {value.toInt()};
  if (value.isBool()) return {value.toBool()};
  if (value.isDouble()) return {trace::Real{value.toDouble()}};
  if (value.isList()) return list_of(value, tensor_id, generator_path);
  if (value.isString()) return {value.toStringRef()};
  if (value.isDevice()) return {device_of(value.toDevice())};
  if (value.isGenerator()) return {trace::GeneratorRef{generator_path(value.toGenerator())}};
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return {trace::Complex{{number.real()}, {number.imag()}}};
  }
  if (value.isCustomClass()) {
    return value_of_group(value).value_or(trace::Value{trace::Opaque{value.type()->str()}});
  }
  return {trace::Opaque{value.tagKind()}};
}

c10::IValue ivalue_of(const trace::Value& value, const c10::Type& type, const TensorOf& tensor,
                      const GeneratorOf& generator) {
  if (const auto* opaque = std::get_if<trace::Opaque>(&value.data)) {
    throw Error(ErrorCode::kUnsupported,
                c10::str("an argument of type ", opaque->type, " cannot be replayed"));
  }
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      if (std::holds_alternative<trace::None>(value.data)) return {};
      return ivalue_of(value, *type.expectRef<c10::OptionalType>().getElementType(), tensor,
                       generator);
    case c10::TypeKind::TensorType:
      return tensor(expect<trace::TensorRef>(value, type).id);
    case c10::TypeKind::NumberType:
      return number_of(value, type);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return expect<std::int64_t>(value, type);
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      return expect<trace::Real>(value, type).value;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return expect<bool>(value, type);
    case c10::TypeKind::StringType:
      return expect<std::string>(value, type);
    case c10::TypeKind::DeviceObjType:
      return device_of(expect<trace::Device>(value, type));
    case c10::TypeKind::GeneratorType:
      return generator(expect<trace::GeneratorRef>(value, type).path);
    case c10::TypeKind::ListType:
      return ivalue_list(value, type.expectRef<c10::ListType>(), tensor, generator);
    case c10::TypeKind::ClassType:
      if (is_group_type(type)) return group_of(expect<std::string>(value, type));
      if (is_reduction_type(type)) return reduction_of(expect<std::int64_t>(value, type));
      [[fallthrough]];
    default:
      mismatch("replayed: no trace value stands for it", type);
  }
}

}  // namespace steptape::live
