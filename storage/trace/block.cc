#include "storage/trace/block.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

std::string start_of_header(const Block& block) {
  std::string bytes;
  put(bytes, block.type);
  put(bytes, block.flags);
  put(bytes, block.length);
  put(bytes, block.sequence);
  return bytes;
}

std::uint64_t checksum_of_block(const Block& block, ByteView payload) {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  if (!state) throw Error(ErrorCode::kInternal, "no memory for the state of a checksum");
  const std::string start = start_of_header(block);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), start.data(), start.size());
  XXH3_64bits_update(state.get(), payload.data(), payload.size());
  return XXH3_64bits_digest(state.get());
}

template <typename Bytes>
void put_all(std::string& out, const Bytes& bytes) {
  for (std::uint8_t byte : bytes) out += static_cast<char>(byte);
}

}  // namespace

std::uint64_t checksum_of(ByteView bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string encode_header(const Block& block, ByteView payload) {
  std::string bytes = start_of_header(block);
  put(bytes, checksum_of_block(block, payload));
  put(bytes, checksum_of(bytes_of(bytes)));
  return bytes;
}

std::optional<Block> decode_header(ByteView header) {
  if (get<std::uint64_t>(header, 24) != checksum_of(header.first(24))) return std::nullopt;
  Block block;
  block.type = get<std::uint16_t>(header, 0);
  block.flags = get<std::uint16_t>(header, 2);
  block.length = get<std::uint32_t>(header, 4);
  block.sequence = get<std::uint64_t>(header, 8);
  block.checksum = get<std::uint64_t>(header, 16);
  return block;
}

bool payload_is_right(const Block& block, ByteView payload) {
  return checksum_of_block(block, payload) == block.checksum;
}

std::string encode_file_header() {
  std::string bytes;
  put_all(bytes, kMagic);
  put(bytes, kMajor);
  put(bytes, kMinor);
  put(bytes, kLittleEndian);
  put(bytes, checksum_of(bytes_of(bytes)));
  return bytes;
}

std::string encode_footer(const Footer& footer) {
  std::string bytes;
  put(bytes, footer.index_offset);
  put(bytes, footer.file_bytes);
  put_all(bytes, kFooterMagic);
  put(bytes, checksum_of(bytes_of(bytes)));
  return bytes;
}

std::optional<Footer> decode_footer(ByteView bytes) {
  if (get<std::uint64_t>(bytes, 24) != checksum_of(bytes.first(24))) return std::nullopt;
  const auto magic = bytes.subspan(16, 8);
  const bool fits = std::ranges::equal(magic, kFooterMagic, [](std::byte a, std::uint8_t b) {
    return std::to_integer<std::uint8_t>(a) == b;
  });
  if (!fits) return std::nullopt;
  return Footer{get<std::uint64_t>(bytes, 0), get<std::uint64_t>(bytes, 8)};
}

}  // namespace steptape::storage
