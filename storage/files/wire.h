#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace steptape::storage {

using ByteView = std::span<const std::byte>;

/// Appends `number` to `out`, lowest byte first.
template <std::unsigned_integral Number>
void put(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    out += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff);
  }
}

/// The number at `offset` of `bytes`, which must hold all of it.
template <std::unsigned_integral Number>
Number get(ByteView bytes, std::size_t offset) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= std::to_integer<std::uint64_t>(bytes[offset + i]) << (8 * i);
  }
  return static_cast<Number>(number);
}

inline ByteView bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace steptape::storage
