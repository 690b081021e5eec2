#include "storage/trace/trace_writer.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "steptape/error.h"
#include "storage/trace/frame.h"

namespace steptape::storage {
namespace {

/// How many pieces of tensor bytes are packed before they are written: bounds the memory.
constexpr std::size_t kPiecesAtOnce = 64;

/// So many recordings at most are lost with one that is damaged: the first, and each one of this
/// number, is packed alone.
constexpr std::uint64_t kPackedAloneEvery = 16;

constexpr Packing kRecordingPacking = {3, kMaxRecordingExpansion};

std::string bytes_of_message(const google::protobuf::MessageLite& message) {
  if (message.ByteSizeLong() > INT_MAX) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a recording needs {} bytes without its tensors, and the format ends "
                            "at 2 GiB",
                            message.ByteSizeLong()));
  }
  return message.SerializeAsString();
}

}  // namespace

void TraceWriter::head(const trace::Trace& trace) {
  write_message(BlockType::kHead, encode_head(trace));
}

void TraceWriter::step(std::string_view name, std::string_view place) {
  const auto known = steps_.find(name);
  if (known == steps_.end()) {
    write_message(BlockType::kStep, encode_step(name, place));
    step_ = &steps_.emplace(name, StepState()).first->second;
  } else if (step_ != &known->second) {
    write_message(BlockType::kStepAgain, encode_step_again(name));
    step_ = &known->second;
  }
}

void TraceWriter::recording(const trace::Recording& recording) {
  if (!recording.windows.empty() && !std::exchange(has_windows_, true))
    out_.message(BlockType::kWindows, "");
  StoredBytes::Uses uses;
  std::string message = bytes_of_message(encode_recording(recording, refer(uses)));
  step_->block = write_recording(message);
  step_->newest = std::move(message);
  ++step_->recordings;
  write_pending();
  if (remember_ == Remember::kAll) return;
  stored_.release(step_->uses);
  step_->uses = std::move(uses);
}

void TraceWriter::account(const trace::Step& step) {
  if (step.account.calls() == 0) return;
  this->step(step.name, step.place);
  write_message(BlockType::kStepAgain, encode_account(step));
}

std::uint64_t TraceWriter::write_recording(const std::string& message) {
  if (options_.compression == Compression::kZstd) {
    const bool is_alone = step_->recordings % kPackedAloneEvery == 0;
    const ByteView base = is_alone ? ByteView() : bytes_of(step_->newest);
    proto::PackedRecording packed;
    if (!is_alone) packed.set_base(step_->block);
    packed.set_bytes(message.size());
    packed.set_frame(pack(bytes_of(message), base, kRecordingPacking));
    const std::string bytes = packed.SerializeAsString();
    if (!packed.frame().empty() && bytes.size() < message.size()) {
      return out_.message(BlockType::kPackedRecording, bytes);
    }
  }
  return out_.message(BlockType::kRecording, message);
}

void TraceWriter::saved(const trace::Saved& saved) {
  StoredBytes::Uses uses;
  write_message(BlockType::kSavedState, encode_saved(saved, refer(uses)));
}

EncodeBytes TraceWriter::refer(StoredBytes::Uses& uses) {
  return [this, &uses](const trace::Blob& blob, proto::BytesRef& out) {
    const StoredBytes::Found found = stored_.use(blob, uses);
    if (found.is_new) pending_.push_back({found.id, blob});
    out.set_id(found.id);
    out.set_bytes(blob->size());
  };
}

void TraceWriter::write_message(BlockType type, const google::protobuf::MessageLite& message) {
  out_.message(type, bytes_of_message(message));
  write_pending();
}

void TraceWriter::write_pending() {
  for (const Pending& bytes : pending_) write_bytes(bytes);
  pending_.clear();
}

void TraceWriter::write_bytes(const Pending& bytes) {
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
      out_.block(static_cast<std::uint16_t>(BlockType::kBytes), kMustUnderstand, bytes_of(payload));
    }
  }
}

BlockWriter::BlockWriter(Output& out) : out_(out) { out_.append(bytes_of(encode_file_header())); }

std::uint64_t BlockWriter::message(BlockType type, const std::string& bytes) {
  const auto first = static_cast<std::uint64_t>(index_.block_bytes_size());
  ByteView rest = bytes_of(bytes);
  do {
    const ByteView piece = rest.first(std::min(rest.size(), kMaxPayloadBytes));
    rest = rest.subspan(piece.size());
    const std::uint16_t flags = rest.empty() ? kMustUnderstand : kMustUnderstand | kContinues;
    block(static_cast<std::uint16_t>(type), flags, piece);
  } while (!rest.empty());
  return first;
}

void BlockWriter::block(std::uint16_t type, std::uint16_t flags, ByteView payload) {
  Block block;
  block.type = type;
  block.flags = flags;
  block.length = static_cast<std::uint32_t>(payload.size());
  block.sequence = static_cast<std::uint64_t>(index_.block_bytes_size());
  out_.append(bytes_of(encode_header(block, payload)));
  out_.append(payload);
  index_.add_block_bytes(block.bytes());
  index_.add_block_types(block.type);
}

void BlockWriter::finish() {
  const std::uint64_t index_offset = out_.bytes();
  message(BlockType::kIndex, index_.SerializeAsString());
  out_.append(bytes_of(encode_footer({index_offset, out_.bytes() + kFooterBytes})));
}

StoredBytes::Found StoredBytes::use(const trace::Blob& blob, Uses& uses) {
  const auto by_pointer = digests_.find(blob.get());
  const trace::Digest digest =
      by_pointer != digests_.end() ? by_pointer->second : trace::digest_of(*blob);
  const auto [known, is_new] =
      known_.try_emplace({digest.low, digest.high}, Entry{blob, next_id_, 0});
  Entry& entry = known->second;
  if (entry.blob != blob && *entry.blob != *blob) return {next_id_++, true};
  if (is_new) {
    digests_.emplace(blob.get(), digest);
    ++next_id_;
  }
  ++entry.uses;
  uses.push_back(digest);
  return {entry.id, is_new};
}

void StoredBytes::release(const Uses& uses) {
  for (const trace::Digest& digest : uses) {
    const auto known = known_.find({digest.low, digest.high});
    if (--known->second.uses > 0) continue;
    digests_.erase(known->second.blob.get());
    known_.erase(known);
  }
}

}  // namespace steptape::storage
