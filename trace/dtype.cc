#include "trace/dtype.h"

#include <fmt/format.h>

#include <array>

#include "steptape/error.h"
#include "trace/named.h"

namespace steptape::trace {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array kDTypes = {
    DTypeRow{DType::kBool, "bool", 1},
    DTypeRow{DType::kUInt8, "uint8", 1},
    DTypeRow{DType::kInt8, "int8", 1},
    DTypeRow{DType::kInt16, "int16", 2},
    DTypeRow{DType::kInt32, "int32", 4},
    DTypeRow{DType::kInt64, "int64", 8},
    DTypeRow{DType::kFloat16, "float16", 2},
    DTypeRow{DType::kBFloat16, "bfloat16", 2},
    DTypeRow{DType::kFloat32, "float32", 4},
    DTypeRow{DType::kFloat64, "float64", 8},
    DTypeRow{DType::kComplex64, "complex64", 8},
    DTypeRow{DType::kComplex128, "complex128", 16},
    DTypeRow{DType::kUInt16, "uint16", 2},
    DTypeRow{DType::kUInt32, "uint32", 4},
    DTypeRow{DType::kUInt64, "uint64", 8},
    DTypeRow{DType::kFloat8E4M3FN, "float8_e4m3fn", 1},
    DTypeRow{DType::kFloat8E5M2, "float8_e5m2", 1},
    DTypeRow{DType::kComplex32, "complex32", 4},
};

constexpr bool rows_follow_the_numbers() {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i + 1) return false;
  }
  return true;
}
static_assert(rows_follow_the_numbers(), "a dtype's row is found by its number");

const DTypeRow* row_of(DType dtype) noexcept {
  const auto number = static_cast<std::size_t>(dtype);
  return number >= 1 && number <= kDTypes.size() ? &kDTypes[number - 1] : nullptr;
}

constexpr std::array kDevices = {
    Named{DeviceKind::kCpu, "cpu"},
    Named{DeviceKind::kCuda, "cuda"},
    Named{DeviceKind::kMeta, "meta"},
    Named{DeviceKind::kOther, "other"},
};

}  // namespace

std::string_view name_of(DType dtype) noexcept {
  const DTypeRow* row = row_of(dtype);
  return row ? row->name : "unknown";
}

std::size_t bytes_of(DType dtype) noexcept {
  const DTypeRow* row = row_of(dtype);
  return row ? row->bytes : 0;
}

DType dtype_of(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no dtype is called `{}`", name));
}

bool is_dtype(std::uint32_t number) noexcept { return number >= 1 && number <= kDTypes.size(); }

std::string text_of(const Device& device) {
  const bool alone = device.kind == DeviceKind::kCpu || device.kind == DeviceKind::kMeta;
  if (alone && device.index == 0) return std::string(find_name(kDevices, device.kind));
  return fmt::format("{}:{}", find_name(kDevices, device.kind), device.index);
}

}  // namespace steptape::trace
