#include "storage/writer.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <climits>
#include <unordered_map>

#include "steptape/error.h"
#include "storage/block_writer.h"
#include "storage/chunk.h"
#include "storage/encode.h"

namespace steptape::storage {
namespace {

/// How many pieces of tensor bytes are packed before they are written: bounds the memory.
constexpr std::size_t kPiecesAtOnce = 64;

/// Writes messages in order, each followed by the bytes that it is the first to refer to.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& path, const WriteOptions& options, FileSystem& files)
      : out_(path, files), options_(options) {}

  void write(const trace::Trace& trace) {
    write_message(BlockType::kHead, encode_head(trace));
    for (const trace::Step& step : trace.steps) {
      write_message(BlockType::kStep, encode_step(step));
      for (const trace::Recording& recording : step.recordings) {
        write_message(BlockType::kRecording, encode_recording(recording, give_id_));
      }
    }
    for (const trace::Saved& saved : trace.state) {
      write_message(BlockType::kSavedState, encode_saved(saved, give_id_));
    }
    out_.finish();
  }

 private:
  struct Pending {
    std::uint64_t id;
    trace::Blob blob;
  };

  void refer(const trace::Blob& blob, proto::BytesRef& out) {
    const auto [known, is_new] = ids_.emplace(blob.get(), ids_.size());
    if (is_new) pending_.push_back({known->second, blob});
    out.set_id(known->second);
    out.set_bytes(blob->size());
  }

  void write_message(BlockType type, const google::protobuf::MessageLite& message) {
    if (message.ByteSizeLong() > INT_MAX) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("a recording needs {} bytes without its tensors, and the format ends "
                              "at 2 GiB",
                              message.ByteSizeLong()));
    }
    out_.message(type, message.SerializeAsString());
    for (const Pending& bytes : pending_) write_bytes(bytes);
    pending_.clear();
  }

  void write_bytes(const Pending& bytes) {
    const ByteView all = *bytes.blob;
    const std::size_t pieces = (all.size() + kMaxRawBytes - 1) / kMaxRawBytes;
    for (std::size_t first = 0; first < pieces; first += kPiecesAtOnce) {
      std::vector<std::string> payloads(std::min(kPiecesAtOnce, pieces - first));
      tbb::parallel_for(std::size_t{0}, payloads.size(), [&](std::size_t i) {
        const std::size_t offset = (first + i) * kMaxRawBytes;
        const ByteView raw = all.subspan(offset, std::min(kMaxRawBytes, all.size() - offset));
        payloads[i] = encode_chunk(bytes.id, offset, raw, options_.compression);
      });
      for (const std::string& payload : payloads) {
        out_.block(static_cast<std::uint16_t>(BlockType::kBytes), kMustUnderstand,
                   bytes_of(payload));
      }
    }
  }

  BlockWriter out_;
  WriteOptions options_;
  std::unordered_map<const void*, std::uint64_t> ids_;
  std::vector<Pending> pending_;
  EncodeBytes give_id_ = [this](const trace::Blob& blob, proto::BytesRef& out) {
    refer(blob, out);
  };
};

/// What a reader would refuse is refused here, while the trace is still in memory.
void require_valid(const trace::Trace& trace, const std::filesystem::path& path) {
  try {
    trace::validate(trace);
  } catch (const Error& error) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("cannot write {}: the trace is not valid: {}", path.string(), error.what()));
  }
}

}  // namespace

void write(const trace::Trace& trace, const std::filesystem::path& path,
           const WriteOptions& options, FileSystem& files) {
  require_valid(trace, path);
  TraceWriter(path, options, files).write(trace);
}

}  // namespace steptape::storage
