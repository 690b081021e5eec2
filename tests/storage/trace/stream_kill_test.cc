#include <gtest/gtest.h>

#include <random>

#include "tests/storage/figures.h"
#include "tests/storage/killed_training.h"
#include "tests/storage/sample.h"
#include "tests/storage/stream.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

/// A training that flushes every 4 recordings and then says on `out` how far it is, until it is
/// killed.
[[noreturn]] void train(const std::filesystem::path& path, int out) {
  StreamWriter writer(path, head_of_stream());
  for (std::uint64_t call = 1;; ++call) {
    add(writer, addition(call));
    if (call % 4 != 0) continue;
    if (!writer.flush()) ::_exit(1);
    say_flushed(out, call);
  }
}

class StreamKillTest : public TraceFileTest {
 protected:
  /// How many recordings the file holds; they are the first of the training.
  std::uint64_t recordings_at(const std::filesystem::path& path) const {
    Report report;
    const auto found = recover(path, report);
    std::uint64_t count = 0;
    for (const trace::Step& step : found.value().steps) count += step.recordings.size();
    EXPECT_EQ(found, trace_of(additions(count)));
    return count;
  }
};

TEST_F(StreamKillTest, AKilledWriterKeepsWhatItFlushedAndTheNextLeavesItAlone) {
  const std::size_t kills = amount("STEPTAPE_KILLS", 200);
  constexpr std::size_t kKillsOfOneFolder = 10;
  std::mt19937_64 random(kills);
  const std::string part = path_.string() + ".part";
  std::uint64_t all = 0;
  std::size_t torn = 0;
  std::vector<std::string> left;
  for (std::size_t i = 0; i < kills; ++i) {
    const std::uint64_t flushed = train_and_kill(std::chrono::microseconds(random() % 5000),
                                                 [this](int out) { train(path_, out); });
    const std::uint64_t found = recordings_at(part);
    ASSERT_GE(found, flushed);
    all += found;
    torn += found > flushed ? 1 : 0;
    for (std::size_t k = 0; k < left.size(); ++k) {
      ASSERT_EQ(bytes_of_file(part + "." + std::to_string(k + 1)), left[k]);
    }
    left.push_back(bytes_of_file(part));
    if (left.size() < kKillsOfOneFolder) continue;
    left.clear();
    for (const std::string& name : names_in_folder()) std::filesystem::remove(folder_ / name);
  }
  tell("stream_kills", kills);
  tell("stream_kills_behind_a_flush_that_was_not_told", torn);
  tell("stream_recordings_of_killed_writers", all);
}

}  // namespace
}  // namespace steptape::storage
