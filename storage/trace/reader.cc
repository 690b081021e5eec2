#include "storage/trace/reader.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "steptape/error.h"
#include "storage/trace/frame.h"
#include "storage/trace/messages.h"
#include "storage/trace/scan.h"
#include "storage/trace/verify.h"
#include "trace/model.h"
#include "trace/validate.h"

namespace steptape::storage {
namespace {

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

/// What a block says, on an arena of its own: what the end of memory leaves of a message is let go
/// of as memory, where its destructor would delete parts of a oneof that are not there yet
/// (protobuf 3.21).
template <typename Proto>
class Parsed {
 public:
  Parsed(const std::string& bytes, std::uint64_t block)
      : message_(*google::protobuf::Arena::CreateMessage<Proto>(&arena_)) {
    if (!message_.ParseFromString(bytes))
      fail_lost(fmt::format("the message in block {} cannot be read", block));
  }

  const Proto& message() const { return message_; }

 private:
  google::protobuf::Arena arena_;
  Proto& message_;
};

Loader::Loader(const InputFile& file, std::span<const Block> blocks, Loss loss,
               std::span<const std::size_t> damaged)
    : file_(file), loss_(loss) {
  gather_messages(blocks, damaged);
}

void Loader::gather_messages(std::span<const Block> blocks, std::span<const std::size_t> damaged) {
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t last = first;
    while (blocks[last].continues() && last + 1 < blocks.size() &&
           blocks[last + 1].type == blocks[first].type) {
      ++last;
    }
    const Block& block = blocks[first];
    const auto next_damaged = std::ranges::lower_bound(damaged, first);
    const bool is_damaged = next_damaged != damaged.end() && *next_damaged <= last;
    if (blocks[last].continues()) {
      if (loss_ == Loss::kThrow || last + 1 < blocks.size()) {
        fail_lost(
            fmt::format("block {} goes on, and the next one does not", blocks[last].sequence));
      }
      lost_.push_back(fmt::format("the message from block {} on has no end", block.sequence));
    } else if (block.is(BlockType::kBytes)) {
      if (first != last) fail_lost(fmt::format("block {} of tensor bytes goes on", block.sequence));
      if (!is_damaged) gather_piece(block);
    } else if (block.is_known() && !block.is(BlockType::kIndex)) {
      messages_.push_back({static_cast<BlockType>(block.type),
                           blocks.subspan(first, last - first + 1), is_damaged});
    }
    first = last + 1;
  }
}

void Loader::gather_piece(const Block& block) {
  const std::string start =
      file_.read(block.payload_offset(), std::min<std::uint64_t>(block.length, kChunkHeaderBytes));
  const ChunkHeader header = decode_chunk_header(bytes_of(start), block.length);
  pieces_[header.id].push_back({block, header});
}

trace::Trace Loader::load() {
  if (messages_.empty() || messages_.front().type != BlockType::kHead) {
    fail_lost("the first block is not a head");
  }
  for (const Message& message : messages_) load_message(message);
  trace::validate(trace_);
  return std::move(trace_);
}

void Loader::load_message(const Message& message) {
  if (message.is_damaged) return pass_over(message);
  switch (message.type) {
    case BlockType::kHead:
      if (&message != &messages_.front()) fail_lost("there is more than one head");
      return load_head(message);
    case BlockType::kStep:
      return begin_step(message);
    case BlockType::kStepAgain:
      return go_on_with_step(message);
    case BlockType::kRecording:
    case BlockType::kPackedRecording:
      return load_recording(message);
    case BlockType::kSavedState:
      return load_saved(message);
    case BlockType::kWindows:
      return;
    case BlockType::kBytes:
    case BlockType::kIndex:
      break;
  }
  throw Error(ErrorCode::kInternal, "a block without a message was taken for one");
}

void Loader::load_head(const Message& message) {
  const Parsed<proto::Head> head(text_of(message), message.sequence());
  decode_head(head.message(), trace_);
}

void Loader::pass_over(const Message& damaged) {
  const std::uint64_t number = damaged.sequence();
  if (damaged.type == BlockType::kHead) fail_lost("the head is damaged");
  if (damaged.type == BlockType::kStep || damaged.type == BlockType::kStepAgain) {
    step_.reset();
    is_step_lost_ = true;
    lost_.push_back(fmt::format(
        "the recordings after block {} are left out: it says of which step they are", number));
  } else if (damaged.type == BlockType::kSavedState) {
    lost_.push_back(fmt::format("the saved state in block {} is left out", number));
  } else if (step_) {
    lost_.push_back(fmt::format("the recording of step {} in block {} is left out",
                                trace_.steps[*step_].name, number));
  }
}

void Loader::begin_step(const Message& message) {
  const Parsed<proto::Step> step(text_of(message), message.sequence());
  trace_.steps.push_back(decode_step(step.message()));
  newest_.emplace_back();
  step_ = trace_.steps.size() - 1;
  steps_.emplace(trace_.steps.back().name, *step_);
}

void Loader::go_on_with_step(const Message& message) {
  const Parsed<proto::StepAgain> parsed(text_of(message), message.sequence());
  const proto::StepAgain& in = parsed.message();
  const auto known = steps_.find(in.name());
  if (known != steps_.end()) {
    step_ = known->second;
    if (in.has_account()) trace_.steps[*step_].account = decode_account(in.account());
    return;
  }
  const std::string what = fmt::format("step {} goes on in block {}, and began nowhere before",
                                       in.name(), message.sequence());
  if (loss_ == Loss::kThrow) fail_lost(what);
  lost_.push_back(what);
  step_ = trace_.steps.size();
  trace_.steps.push_back({in.name(), "", {}, decode_account(in.account())});
  newest_.emplace_back();
  steps_.emplace(in.name(), *step_);
}

void Loader::load_recording(const Message& message) {
  if (!step_ && is_step_lost_) return;
  if (!step_) fail_lost("a recording stands before the first step");
  trace::Step& step = trace_.steps[*step_];
  guarded(fmt::format("a recording of step {}", step.name), [&] {
    Newest& newest = newest_[*step_];
    newest.text = text_of_recording(message, newest);
    newest.block = message.sequence();
    const Parsed<proto::Recording> parsed(newest.text, newest.block);
    trace::Recording recording = decode_recording(
        parsed.message(),
        [this](const proto::BytesRef& reference) { return bytes_of_reference(reference); });
    if (loss_ == Loss::kSkip) trace::validate_recording(recording, trace::Place(), digests_);
    step.recordings.push_back(std::move(recording));
  });
}

void Loader::load_saved(const Message& message) {
  const Parsed<proto::SavedState> parsed(text_of(message), message.sequence());
  const proto::SavedState& in = parsed.message();
  guarded(fmt::format("the saved state of {}", in.path()), [&] {
    trace_.state.push_back(decode_saved(
        in, [this](const proto::BytesRef& reference) { return bytes_of_reference(reference); }));
  });
}

std::string Loader::text_of(const Message& message) const {
  std::string text;
  for (const Block& block : message.blocks) {
    text += file_.read(block.payload_offset(), block.length);
  }
  return text;
}

std::string Loader::text_of_recording(const Message& message, const Newest& before) const {
  if (message.type == BlockType::kRecording) return text_of(message);
  const Parsed<proto::PackedRecording> parsed(text_of(message), message.sequence());
  const proto::PackedRecording& in = parsed.message();
  const std::uint64_t number = message.sequence();
  if (in.base() != 0 && in.base() != before.block) {
    fail_lost(fmt::format(
        "the recording in block {} is packed against that in block {}, and {}", number, in.base(),
        before.block == 0 ? "there is none before it"
                          : fmt::format("the one before it is in block {}", before.block)));
  }
  if (in.bytes() > INT_MAX || in.bytes() / kMaxRecordingExpansion > in.frame().size()) {
    fail_lost(
        fmt::format("the recording in block {} has {} stored bytes that claim to be {}, more than "
                    "the format allows",
                    number, in.frame().size(), in.bytes()));
  }
  std::string text(in.bytes(), '\0');
  unpack(bytes_of(in.frame()), in.base() == 0 ? ByteView() : bytes_of(before.text),
         std::as_writable_bytes(std::span(text)));
  return text;
}

trace::Blob Loader::bytes_of_reference(const proto::BytesRef& reference) {
  const auto [known, is_new] = blobs_.try_emplace(reference.id());
  trace::Blob& blob = known->second;
  if (is_new) blob = unpack_pieces(pieces_[reference.id()], reference.bytes());
  if (!blob) fail_lost(fmt::format("tensor bytes {} could not be had before", reference.id()));
  if (blob->size() != reference.bytes()) {
    fail_lost(fmt::format("tensor bytes {} are {} long in one place and {} in another",
                          reference.id(), blob->size(), reference.bytes()));
  }
  return blob;
}

trace::Blob Loader::unpack_pieces(const std::vector<Piece>& pieces, std::uint64_t bytes) const {
  std::uint64_t there = 0;
  for (const Piece& piece : pieces) {
    if (piece.header.offset != there) {
      fail_lost(fmt::format("block {} holds tensor bytes from {} on, and {} come next",
                            piece.block.sequence, piece.header.offset, there));
    }
    there += piece.header.raw_bytes;
  }
  if (there != bytes) fail_lost(fmt::format("{} of {} tensor bytes are there", there, bytes));
  auto blob = std::make_shared<std::vector<std::byte>>(there);
  tbb::parallel_for(std::size_t{0}, pieces.size(), [&](std::size_t i) {
    const auto& [block, header] = pieces[i];
    const std::string payload = file_.read(block.payload_offset(), block.length);
    decode_chunk(header, bytes_of(payload),
                 std::span(*blob).subspan(header.offset, header.raw_bytes));
  });
  return blob;
}

template <typename Action>
void Loader::guarded(const std::string& what, Action&& action) {
  if (loss_ == Loss::kThrow) return action();
  try {
    action();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) throw;
    lost_.push_back(fmt::format("{} is left out: {}", what, error.what()));
  }
}

void require(const std::optional<Problem>& problem) {
  if (problem) throw Error(problem->code, problem->message);
}

}  // namespace

trace::Trace read(const InputFile& file) {
  const Scan found = scan(file);
  require(found.problem);
  const std::vector<std::size_t> damaged = damaged_blocks(file, found.blocks);
  if (!damaged.empty()) {
    const Block& block = found.blocks[damaged.front()];
    throw Error(ErrorCode::kDataLoss,
                fmt::format("block {} at offset {} is damaged: its checksum is wrong",
                            block.sequence, block.offset));
  }
  require(problem_of_index(file, found.blocks));
  return Loader(file, found.blocks, Loss::kThrow).load();
}

trace::Trace read(const std::filesystem::path& path, FileSystem& files) {
  const InputFile file(path, files);
  try {
    return read(file);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    throw Error(error.code(), fmt::format("cannot read {}: {}", path.string(), error.what()));
  }
}

std::optional<trace::Trace> recover(const std::filesystem::path& path, Report& report,
                                    FileSystem& files) {
  const InputFile file(path, files);
  report = check(file);
  const Scan found = scan(file);
  if (found.blocks.empty()) return std::nullopt;
  const std::vector<std::size_t> damaged = damaged_blocks(file, found.blocks);
  try {
    Loader loader(file, found.blocks, Loss::kSkip, damaged);
    trace::Trace trace = loader.load();
    report.problems.insert(report.problems.end(), loader.lost().begin(), loader.lost().end());
    return trace;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;
    report.problems.emplace_back(error.what());
    return std::nullopt;
  }
}

}  // namespace steptape::storage
