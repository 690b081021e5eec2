#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace steptape::trace {

/// 128 bits that stand for some bytes (XXH3-128 with seed 0). Equal bytes have equal digests; that
/// two digests are equal says that the bytes are, up to a chance of 2^-64 for bytes nobody chose.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

Digest digest_of(std::span<const std::byte> bytes) noexcept;
/// 32 lower-case hexadecimal digits, high half first.
std::string text_of(const Digest& digest);

}  // namespace steptape::trace
