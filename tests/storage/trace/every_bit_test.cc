#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <thread>

#include "tests/storage/figures.h"
#include "tests/storage/memory_file_system.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

/// What is made of the file, or why nothing is.
std::optional<trace::Trace> read_or_refusal(MemoryFileSystem& files, std::string& refusal) {
  try {
    return read(kSamplePath, files);
  } catch (const Error& error) {
    refusal = error.code() == ErrorCode::kDataLoss ? error.what() : "";
    return std::nullopt;
  }
}

/// An empty string when all is as it should be with a file that is not what was written.
std::string what_is_wrong(const Sample& sample, MemoryFileSystem& files) {
  std::string refusal;
  if (read_or_refusal(files, refusal)) return "a changed file was read";
  if (refusal.empty()) return "it was refused without a word, or for another reason";
  Report report;
  const std::optional<trace::Trace> found = recover(kSamplePath, report, files);
  if (report.whole()) return "`check` found a changed file whole";
  if (found && !is_part(*found, sample.trace)) return "something else was recovered";
  return files.open_files() == 0 ? "" : "a file stayed open";
}

/// Recordings and saved states that lie, with all their bytes, within the first `length` bytes.
std::size_t whole_parts(const std::vector<Block>& blocks, std::uint64_t length) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].is(BlockType::kRecording) && !blocks[i].is(BlockType::kPackedRecording) &&
        !blocks[i].is(BlockType::kSavedState)) {
      continue;
    }
    std::size_t last = i;
    while (last + 1 < blocks.size() && blocks[last + 1].is(BlockType::kBytes)) ++last;
    count += blocks[last].end() <= length ? 1 : 0;
  }
  return count;
}

std::size_t parts_of(const std::optional<trace::Trace>& trace) {
  if (!trace) return 0;
  std::size_t count = trace->state.size();
  for (const trace::Step& step : trace->steps) count += step.recordings.size();
  return count;
}

TEST(EveryByteTest, ACutAnywhereIsNoticedAndAllThatIsWholeIsRecovered) {
  std::size_t cases = 0;
  for (const Sample& sample : samples()) {
    const std::vector<Block> blocks = blocks_of(sample.bytes);
    for (std::size_t length = 0; length < sample.bytes.size(); ++length, ++cases) {
      MemoryFileSystem files;
      files.put(kSamplePath, sample.bytes.substr(0, length));
      ASSERT_EQ(what_is_wrong(sample, files), "") << sample.name << " cut at " << length;
      Report report;
      ASSERT_EQ(parts_of(recover(kSamplePath, report, files)), whole_parts(blocks, length))
          << sample.name << " cut at " << length;
    }
  }
  tell("cuts", cases);
}

/// Flips each bit of the bytes from `first` to `last`; the number of the first that went unnoticed.
std::optional<std::size_t> first_bit_unnoticed(const Sample& sample, std::size_t first,
                                               std::size_t last) {
  MemoryFileSystem files;
  files.put(kSamplePath, sample.bytes);
  std::string& bytes = files.bytes_at(kSamplePath);
  for (std::size_t bit = first * 8; bit < last * 8; ++bit) {
    char& byte = bytes[bit / 8];
    const char right = byte;
    byte = static_cast<char>(byte ^ (1 << bit % 8));
    if (!what_is_wrong(sample, files).empty()) return bit;
    byte = right;
  }
  return std::nullopt;
}

TEST(EveryBitTest, AFlippedBitIsNoticedAndNothingWrongIsRecovered) {
  // The two threads are enough.
  const tbb::global_control no_more(tbb::global_control::max_allowed_parallelism, 1);
  std::size_t cases = 0;
  for (const Sample& sample : samples()) {
    const std::size_t middle = sample.bytes.size() / 2;
    std::optional<std::size_t> unnoticed[2];
    {
      const std::jthread other([&] { unnoticed[0] = first_bit_unnoticed(sample, 0, middle); });
      unnoticed[1] = first_bit_unnoticed(sample, middle, sample.bytes.size());
    }
    for (const auto& bit : unnoticed) EXPECT_FALSE(bit) << sample.name << ", bit " << *bit;
    cases += sample.bytes.size() * 8;
  }
  tell("flipped_bits", cases);
}

}  // namespace
}  // namespace steptape::storage
