#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "storage/atomic_file.h"
#include "storage/block.h"

namespace steptape::storage {

/// Puts blocks into a file, numbers them and keeps the index. Throws what AtomicFile throws.
class BlockWriter {
 public:
  /// Writes the file's header.
  explicit BlockWriter(const std::filesystem::path& path, FileSystem& files);

  /// One message, in as many blocks as it needs.
  void message(BlockType type, const std::string& bytes);
  /// One block; `payload` holds at most kMaxPayloadBytes.
  void block(std::uint16_t type, std::uint16_t flags, ByteView payload);
  /// Writes index and footer and puts the file into its place.
  void finish();

 private:
  AtomicFile file_;
  std::vector<Block> written_;
};

}  // namespace steptape::storage
