#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "storage/files/input_file.h"
#include "storage/trace/block.h"
#include "storage/trace/messages.h"
#include "storage/trace/writer.h"
#include "trace.pb.h"
#include "trace/model.h"

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

/// Which bytes a file holds already, so that equal ones are written once: found by their digest,
/// and compared. It keeps them in memory until they are released.
class StoredBytes {
 public:
  struct Found {
    std::uint64_t id = 0;
    bool is_new = false;
  };
  /// What a part of the trace refers to.
  using Uses = std::vector<trace::Digest>;

  /// The id of the bytes; adds to `uses`.
  Found use(const trace::Blob& blob, Uses& uses);
  /// Forgets the bytes that nothing else uses.
  void release(const Uses& uses);

 private:
  struct Entry {
    trace::Blob blob;
    std::uint64_t id = 0;
    std::size_t uses = 0;
  };

  std::map<std::pair<std::uint64_t, std::uint64_t>, Entry> known_;  ///< by digest
  std::unordered_map<const void*, trace::Digest> digests_;          ///< of the blobs in `known_`
  std::uint64_t next_id_ = 0;
};

/// What of the recordings that were written stays in memory, so that later ones can refer to it.
enum class Remember {
  kAll,     ///< while the whole trace is in memory anyway
  kNewest,  ///< the newest recording of each step
};

/// Writes the parts of a trace in the order in which they come, each followed by the tensor bytes
/// that it is the first to refer to. Throws what the file throws, and Error (unsupported) for a
/// recording of 2 GiB.
class TraceWriter {
 public:
  /// Writes the file's header. `out` must outlive the object.
  TraceWriter(Output& out, const WriteOptions& options, Remember remember)
      : out_(out), options_(options), remember_(remember) {}

  /// The first part: what the trace says of its maker.
  void head(const trace::Trace& trace);
  /// The recordings that follow are of the step of this name, which begins here or goes on.
  void step(std::string_view name, std::string_view place);
  void recording(const trace::Recording& recording);
  /// What became of a step's calls, where it says so; after its recordings.
  void account(const trace::Step& step);
  void saved(const trace::Saved& saved);
  /// Index and footer.
  void finish() { out_.finish(); }

 private:
  struct Pending {
    std::uint64_t id;
    trace::Blob blob;
  };
  struct StepState {
    StoredBytes::Uses uses;   ///< of its newest recording
    std::string newest;       ///< that recording's message
    std::uint64_t block = 0;  ///< with which it begins
    std::uint64_t recordings = 0;
  };

  EncodeBytes refer(StoredBytes::Uses& uses);
  std::uint64_t write_recording(const std::string& message);
  void write_message(BlockType type, const google::protobuf::MessageLite& message);
  void write_pending();
  void write_bytes(const Pending& bytes);

  BlockWriter out_;
  WriteOptions options_;
  Remember remember_;
  std::map<std::string, StepState, std::less<>> steps_;
  StepState* step_ = nullptr;  ///< whose recordings come
  bool has_windows_ = false;   ///< and the file says so
  StoredBytes stored_;
  std::vector<Pending> pending_;  ///< bytes that the last message was the first to refer to
};

}  // namespace steptape::storage
