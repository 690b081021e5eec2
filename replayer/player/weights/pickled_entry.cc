#include "replayer/player/weights/pickled_entry.h"

#include <algorithm>
#include <array>

namespace steptape::replayer {
namespace {

using trace::DType;

struct Row {
  DType dtype;
  std::string_view name;
};

constexpr std::array kStorageTypes = {
    Row{DType::kBool, "BoolStorage"},
    Row{DType::kUInt8, "ByteStorage"},
    Row{DType::kInt8, "CharStorage"},
    Row{DType::kInt16, "ShortStorage"},
    Row{DType::kInt32, "IntStorage"},
    Row{DType::kInt64, "LongStorage"},
    Row{DType::kFloat16, "HalfStorage"},
    Row{DType::kBFloat16, "BFloat16Storage"},
    Row{DType::kFloat32, "FloatStorage"},
    Row{DType::kFloat64, "DoubleStorage"},
    Row{DType::kComplex64, "ComplexFloatStorage"},
    Row{DType::kComplex128, "ComplexDoubleStorage"},
};

}  // namespace

std::string_view storage_type_of(DType dtype) noexcept {
  const auto* const row = std::ranges::find(kStorageTypes, dtype, &Row::dtype);
  return row == kStorageTypes.end() ? std::string_view() : row->name;
}

std::optional<DType> dtype_of_storage_type(std::string_view name) noexcept {
  const auto* const row = std::ranges::find(kStorageTypes, name, &Row::name);
  return row == kStorageTypes.end() ? std::nullopt : std::optional(row->dtype);
}

}  // namespace steptape::replayer
