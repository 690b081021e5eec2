#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "storage/chunk.h"
#include "storage/decode.h"
#include "storage/scan.h"
#include "trace/known_digests.h"

namespace steptape::storage {

/// What to do with a recording or saved state of which something is missing.
enum class Loss { kThrow, kSkip };

/// Puts a trace together from blocks whose checksums hold. `file` and `blocks` must outlive it.
/// Memory is bounded by kMaxExpansion times the size of the file, whatever its numbers say, and no
/// byte is unpacked twice.
class Loader {
 public:
  /// Throws Error (data_loss) when the blocks do not make messages.
  Loader(const InputFile& file, std::span<const Block> blocks, Loss loss);

  /// A trace that has passed trace::validate. Throws Error (data_loss); with Loss::kSkip only where
  /// nothing can be made of the file.
  trace::Trace load();
  /// What was skipped, a sentence each.
  const std::vector<std::string>& lost() const noexcept { return lost_; }

 private:
  struct Message {
    BlockType type;
    std::span<const Block> blocks;
  };
  struct Piece {
    Block block;
    ChunkHeader header;
  };

  void gather_messages(std::span<const Block> blocks);
  void gather_piece(const Block& block);
  void load_message(const Message& message);
  void load_recording(const Message& message);
  void load_saved(const Message& message);
  template <typename Parsed>
  Parsed parse(const Message& message) const;
  trace::Blob bytes_of_reference(const proto::BytesRef& reference);
  trace::Blob unpack(const std::vector<Piece>& pieces, std::uint64_t bytes) const;
  template <typename Action>
  void guarded(const std::string& what, Action&& action);

  const InputFile& file_;
  Loss loss_;
  std::vector<Message> messages_;
  // Ordered, since a file could choose ids that collide in a hash table.
  std::map<std::uint64_t, std::vector<Piece>> pieces_;
  /// Null where bytes could not be had, so that each further reference costs nothing.
  std::map<std::uint64_t, trace::Blob> blobs_;
  trace::KnownDigests digests_;
  std::vector<std::string> lost_;
  trace::Trace trace_;
};

}  // namespace steptape::storage
