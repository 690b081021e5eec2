#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "storage/files/wire.h"

/// zstd frames, alone and against other bytes.
namespace steptape::storage {

struct Packing {
  int level = 1;
  /// The frame is padded, so that it grows at most so many times when it is unpacked.
  std::uint64_t max_expansion = 1;
};

/// Throws Error (data_loss).
[[noreturn]] void fail_lost(const std::string& what);

/// `raw` packed; what it shares with `base` takes no room, and unpacking needs the same `base`,
/// which may be empty. Gives nothing where that is not smaller than `raw`.
std::string pack(ByteView raw, ByteView base, const Packing& packing);
/// Fills `raw`. Throws Error (data_loss) when the frame holds anything but so many bytes.
void unpack(ByteView frame, ByteView base, std::span<std::byte> raw);

}  // namespace steptape::storage
