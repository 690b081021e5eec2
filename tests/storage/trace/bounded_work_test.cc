#include <gtest/gtest.h>

#include <map>

#include "storage/trace/frame.h"
#include "tests/storage/allocations.h"
#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/message.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

constexpr std::size_t kMany = 300'000;

/// Files that would keep a reader busy or fill its memory if it believed them.
class BoundedWorkTest : public testing::Test {
 protected:
  ~BoundedWorkTest() override {
    for (const auto& [verb, most] : most_) {
      tell(verb + "_reads_percent_of_the_file", most.read);
      tell(verb + "_allocates_percent_of_the_file", most.allocated);
    }
  }

  template <typename Action>
  void expect_bounded(const std::string& bytes, const std::string& verb, std::uint64_t times_read,
                      std::uint64_t times_loaded, Action&& action) {
    MemoryFileSystem files;
    files.put(kSamplePath, bytes);
    const AllocationCount count;
    try {
      action(files);
    } catch (const Error&) {
    }
    const std::uint64_t allocated = count.bytes();
    EXPECT_LE(files.bytes_read(), times_read * bytes.size() + kConstant);
    EXPECT_LE(allocated, times_loaded * kMaxExpansion * bytes.size() + kConstant);
    Most& most = most_[verb];
    most.read = std::max(most.read, files.bytes_read() * 100 / bytes.size());
    most.allocated = std::max(most.allocated, allocated * 100 / bytes.size());
  }
  /// Payloads are read for their checksums and for what they hold; `check` looks for itself before
  /// it reads, and `recover` checks before it takes what is whole.
  void expect_bounded(const std::string& bytes) { expect_bounded(bytes, "", 1); }
  /// `expansion`: how many times larger than the file the messages in it are.
  void expect_bounded(const std::string& bytes, const std::string& of, std::uint64_t expansion) {
    expect_bounded(bytes, "read" + of, 2, expansion,
                   [](FileSystem& files) { read(kSamplePath, files); });
    expect_bounded(bytes, "check" + of, 3, expansion,
                   [](FileSystem& files) { check(kSamplePath, files); });
    expect_bounded(bytes, "recover" + of, 5, 2 * expansion, [](FileSystem& files) {
      Report report;
      recover(kSamplePath, report, files);
    });
  }

  static constexpr std::uint64_t kConstant = 1 << 20;

  struct Most {
    std::uint64_t read = 0;
    std::uint64_t allocated = 0;
  };
  std::map<std::string, Most> most_;
};

std::string piece(std::uint64_t id, std::uint32_t raw, std::uint32_t codec,
                  const std::string& data) {
  std::string payload;
  put(payload, id);
  put(payload, std::uint64_t{0});
  put(payload, raw);
  put(payload, codec);
  return payload + data;
}

/// Messages are longer than a block may be.
void put_message(Forge& forge, BlockType type, const std::string& text) {
  for (std::size_t at = 0; at < text.size(); at += kMaxPayloadBytes) {
    const bool is_last = text.size() - at <= kMaxPayloadBytes;
    forge.block(static_cast<std::uint16_t>(type),
                is_last ? kMustUnderstand : kMustUnderstand | kContinues,
                text.substr(at, kMaxPayloadBytes));
  }
}

std::string file_of_recording(const std::string& recording) {
  Forge forge;
  forge.message(BlockType::kHead, "");
  forge.message(BlockType::kStep, Message().bytes(1, "train").text());
  put_message(forge, BlockType::kRecording, recording);
  return forge.finish();
}

TEST_F(BoundedWorkTest, OfManyEmptyThingsOfEveryKind) {
  for (unsigned field = 2; field <= 32; ++field) {
    SCOPED_TRACE(field);
    Message recording;
    recording.number(1, 2);
    for (std::size_t i = 0; i < kMany; ++i) recording.bytes(field, "");
    expect_bounded(file_of_recording(recording.text()));
  }
}

TEST_F(BoundedWorkTest, OfTimesWithoutOps) {
  expect_bounded(
      file_of_recording(Message().number(1, 2).bytes(32, std::string(kMany, '\1')).text()));
}

TEST_F(BoundedWorkTest, OfManyStepsThatTakeTurns) {
  constexpr std::size_t kSteps = 300;
  Forge forge;
  forge.message(BlockType::kHead, "");
  const auto name = [](std::size_t i) {
    return Message().bytes(1, std::string(2000, 'x') + std::to_string(i)).text();
  };
  for (std::size_t i = 0; i < kSteps; ++i) forge.message(BlockType::kStep, name(i));
  for (std::size_t i = 0; i < 20'000; ++i) {
    forge.message(BlockType::kStepAgain, i % 100 == 0 ? name(i % kSteps) : std::string());
    forge.message(BlockType::kRecording, Message().number(1, 2).text());
  }
  forge.message(BlockType::kStep, "");
  expect_bounded(forge.finish());
}

/// The densest of them, each packed as tightly as allowed, against the one before it.
TEST_F(BoundedWorkTest, OfPackedRecordings) {
  for (const unsigned field : {3u, 5u, 10u, 12u, 14u}) {
    SCOPED_TRACE(field);
    Message recording;
    recording.number(1, 2);
    for (std::size_t i = 0; i < kMany / 20; ++i) recording.bytes(field, "");
    const std::string& text = recording.text();
    Forge forge;
    forge.message(BlockType::kHead, "");
    forge.message(BlockType::kStep, Message().bytes(1, "train").text());
    for (std::uint64_t block = 2; block < 30; ++block) {
      const ByteView base = block == 2 ? ByteView() : bytes_of(text);
      Message packed;
      if (block > 2) packed.number(1, block - 1);
      packed.number(2, text.size())
          .bytes(3, pack(bytes_of(text), base, {3, kMaxRecordingExpansion}));
      forge.message(BlockType::kPackedRecording, packed.text());
    }
    expect_bounded(forge.finish(), "_of_packed_recordings", kMaxRecordingExpansion);
  }
}

TEST_F(BoundedWorkTest, OfZerosThatArePackedAsTightlyAsAllowed) {
  Forge forge;
  const std::vector<std::byte> zeros(kMaxRawBytes);
  forge.message(BlockType::kHead, "");
  for (std::uint64_t id = 0; id < 20; ++id) {
    const Message reference = Message().number(1, id).number(2, kMaxRawBytes);
    forge.message(BlockType::kSavedState,
                  Message().bytes(1, "w" + std::to_string(id)).message(3, reference).text());
    forge.message(BlockType::kBytes, encode_chunk(id, 0, zeros, Compression::kZstd));
  }
  expect_bounded(forge.finish());
}

TEST_F(BoundedWorkTest, OfManyReferencesToBytesThatCannotBeUnpacked) {
  Forge forge;
  forge.message(BlockType::kHead, "");
  const Message reference = Message().number(2, 1'000'000);
  for (int i = 0; i < 1000; ++i) {
    forge.message(BlockType::kSavedState,
                  Message().bytes(1, std::to_string(i)).message(3, reference).text());
  }
  forge.message(BlockType::kBytes, piece(0, 1'000'000, 1, std::string(900'000, 'x')));
  expect_bounded(forge.finish());
}

/// Their digest is taken once: taking it for each buffer, this test would last for a minute.
TEST_F(BoundedWorkTest, OfManyBuffersThatShareTheirBytes) {
  constexpr std::uint64_t kBytes = 1'000'000;
  const trace::Blob content = noise(kBytes);
  const trace::Digest digest = trace::digest_of(*content);
  const Message buffer = Message()
                             .number(1, kBytes)
                             .message(2, Message().number(1, 1))
                             .number(4, static_cast<std::uint64_t>(trace::Role::kConstant))
                             .message(6, Message().fixed64(1, digest.low).fixed64(2, digest.high))
                             .message(7, Message().number(2, kBytes));
  Message recording;
  recording.number(1, 2);
  for (std::size_t i = 0; i < 20'000; ++i) recording.message(3, buffer);
  Forge forge;
  forge.message(BlockType::kHead, "");
  forge.message(BlockType::kStep, Message().bytes(1, "train").text());
  for (int i = 0; i < 10; ++i) put_message(forge, BlockType::kRecording, recording.text());
  forge.message(BlockType::kBytes, encode_chunk(0, 0, *content, Compression::kNone));
  expect_bounded(forge.finish());
}

TEST_F(BoundedWorkTest, OfBytesThatAreAnnouncedAndNotThere) {
  constexpr std::uint64_t kTwoGiB = std::uint64_t{1} << 31;
  Forge forge;
  forge.message(BlockType::kHead, "");
  for (int i = 0; i < 1000; ++i) {
    const Message reference = Message().number(1, i).number(2, kTwoGiB);
    forge.message(BlockType::kSavedState,
                  Message().bytes(1, std::to_string(i)).message(3, reference).text());
  }
  expect_bounded(forge.finish());
  expect_bounded(Forge().message(BlockType::kHead, Message().announce(1, kTwoGiB).text()).finish());
  expect_bounded(Forge().header_of_length(kTwoGiB).unfinished());
}

/// A block whose header is wrong, and an index that leads after it and says what it likes.
std::string file_of_index(std::uint64_t bytes_of_a_block) {
  Forge forge;
  forge.message(BlockType::kHead, "");
  std::string sizes;
  for (std::size_t i = 0; i < kMany; ++i) Message::put_varint(sizes, bytes_of_a_block);
  const Message index = Message().bytes(1, sizes).bytes(2, std::string(kMany, '\1'));
  const std::uint64_t index_offset = forge.unfinished().size();
  put_message(forge, BlockType::kIndex, index.text());
  std::string bytes = forge.unfinished();
  bytes[kFileHeaderBytes] ^= 1;
  return bytes + encode_footer({index_offset, bytes.size() + kFooterBytes});
}

TEST_F(BoundedWorkTest, OfAnIndexOfManyBlocks) {
  for (std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{32}, std::uint64_t{100'000}, UINT64_MAX / 2, UINT64_MAX}) {
    SCOPED_TRACE(bytes);
    expect_bounded(file_of_index(bytes));
  }
}

TEST_F(BoundedWorkTest, OfManyBlocksThatHoldNothing) {
  Forge forge;
  forge.message(BlockType::kHead, "");
  for (std::size_t i = 0; i < 20'000; ++i) forge.block(77, 0, "");
  expect_bounded(forge.finish());
}

}  // namespace
}  // namespace steptape::storage
