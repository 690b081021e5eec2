#pragma once

#include <cstdint>
#include <string>

#include "storage/files/input_file.h"
#include "storage/trace/block.h"
#include "trace.pb.h"

namespace steptape::storage {

/// Puts blocks into a file, numbers them and keeps the index: 12 bytes a block. Throws what the
/// file throws.
class BlockWriter {
 public:
  /// Writes the file's header. `out` must outlive the object.
  explicit BlockWriter(Output& out);

  /// One message, in as many blocks as it needs; the number of the first.
  std::uint64_t message(BlockType type, const std::string& bytes);
  /// One block; `payload` holds at most kMaxPayloadBytes.
  void block(std::uint16_t type, std::uint16_t flags, ByteView payload);
  /// Writes index and footer.
  void finish();

 private:
  Output& out_;
  proto::Index index_;
};

}  // namespace steptape::storage
