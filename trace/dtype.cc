#include "trace/dtype.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "steptape/error.h"

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

struct DeviceRow {
  DeviceKind kind;
  std::string_view name;
};

constexpr std::array kDevices = {
    DeviceRow{DeviceKind::kCpu, "cpu"},
    DeviceRow{DeviceKind::kCuda, "cuda"},
    DeviceRow{DeviceKind::kMeta, "meta"},
    DeviceRow{DeviceKind::kOther, "other"},
};

std::string_view name_of(DeviceKind kind) noexcept {
  for (const DeviceRow& row : kDevices) {
    if (row.kind == kind) return row.name;
  }
  return "unknown";
}

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
  if (alone && device.index == 0) return std::string(name_of(device.kind));
  return fmt::format("{}:{}", name_of(device.kind), device.index);
}

Device device_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (const DeviceRow& row : kDevices) {
    if (row.name != name) continue;
    Device device{row.kind, 0};
    if (colon == std::string_view::npos) return device;
    const std::string_view digits = text.substr(colon + 1);
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, device.index);
    if (error == std::errc() && stop == end) return device;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("`{}` is not a device; devices are cpu, cuda:N, meta and other:N", text));
}

}  // namespace steptape::trace
