#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace steptape::trace {

/// Element types, by the names PyTorch prints. Numbers are those of the trace file.
enum class DType : std::uint8_t {
  kBool = 1,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kComplex32,
};

/// "float32", "int64", ...
std::string_view name_of(DType dtype) noexcept;
/// Bytes of one element.
std::size_t bytes_of(DType dtype) noexcept;
/// Throws Error (invalid_argument) when no dtype has this name.
DType dtype_of(std::string_view name);
/// Whether `number` is that of a dtype.
bool is_dtype(std::uint32_t number) noexcept;

enum class DeviceKind : std::uint8_t { kCpu = 1, kCuda, kMeta, kOther };

/// Where a buffer lies. `index` is 0 on the CPU.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:1", "meta", "other:0".
std::string text_of(const Device& device);

}  // namespace steptape::trace
