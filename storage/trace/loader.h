#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "storage/trace/chunk.h"
#include "storage/trace/decode.h"
#include "storage/trace/scan.h"
#include "trace/known_digests.h"

namespace steptape::storage {

/// What to do with a recording or saved state of which something is missing.
enum class Loss { kThrow, kSkip };

/// Puts a trace together from blocks whose headers hold. `file` and `blocks` must outlive it.
/// What it unpacks is bounded by kMaxExpansion times the size of the file, recordings by
/// kMaxRecordingExpansion times, whatever its numbers say; no byte is unpacked twice. Of the
/// messages of recordings it keeps the newest of each step.
class Loader {
 public:
  /// `damaged` are the positions in `blocks` of those whose payload is wrong, in order; with
  /// Loss::kThrow there are none. Throws Error (data_loss) when the blocks do not make messages.
  Loader(const InputFile& file, std::span<const Block> blocks, Loss loss,
         std::span<const std::size_t> damaged = {});

  /// A trace that has passed trace::validate. Throws Error (data_loss); with Loss::kSkip only where
  /// nothing can be made of the file.
  trace::Trace load();
  /// What was skipped, a sentence each.
  const std::vector<std::string>& lost() const noexcept { return lost_; }

 private:
  struct Message {
    BlockType type;
    std::span<const Block> blocks;
    bool is_damaged;

    /// The number of its first block, by which errors name it.
    std::uint64_t sequence() const { return blocks.front().sequence; }
  };
  /// The newest recording of a step, which the next one may be packed against.
  struct Newest {
    std::uint64_t block = 0;  ///< with which it begins
    std::string text;
  };
  struct Piece {
    Block block;
    ChunkHeader header;
  };

  void gather_messages(std::span<const Block> blocks, std::span<const std::size_t> damaged);
  void gather_piece(const Block& block);
  void load_message(const Message& message);
  void pass_over(const Message& damaged);
  void begin_step(const Message& message);
  void go_on_with_step(const Message& message);
  void load_head(const Message& message);
  void load_recording(const Message& message);
  void load_saved(const Message& message);
  std::string text_of(const Message& message) const;
  std::string text_of_recording(const Message& message, const Newest& before) const;
  trace::Blob bytes_of_reference(const proto::BytesRef& reference);
  trace::Blob unpack_pieces(const std::vector<Piece>& pieces, std::uint64_t bytes) const;
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
  std::map<std::string, std::size_t, std::less<>> steps_;  ///< positions in the trace
  std::vector<Newest> newest_;                             ///< of each step
  std::optional<std::size_t> step_;  ///< whose recordings come; none where that is not known
  bool is_step_lost_ = false;
  trace::Trace trace_;
};

}  // namespace steptape::storage
