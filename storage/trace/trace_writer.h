#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "storage/trace/block_writer.h"
#include "storage/trace/encode.h"
#include "storage/trace/stored_bytes.h"
#include "storage/trace/writer.h"

namespace steptape::storage {

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
  StoredBytes stored_;
  std::vector<Pending> pending_;  ///< bytes that the last message was the first to refer to
};

}  // namespace steptape::storage
