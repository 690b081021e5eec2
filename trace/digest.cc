#include "trace/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace steptape::trace {

Digest digest_of(std::span<const std::byte> bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

std::string text_of(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

}  // namespace steptape::trace
