#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/storage/figures.h"
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
    if (!writer.flush() || ::write(out, &call, sizeof(call)) != sizeof(call)) ::_exit(1);
  }
}

class StreamKillTest : public TraceFileTest {
 protected:
  /// Lets a training run for a while; the last call of which it said that it was flushed.
  std::uint64_t train_and_kill(std::chrono::microseconds time) const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) train(path_, ends[1]);
    ::close(ends[1]);
    std::uint64_t flushed = 0;
    EXPECT_EQ(::read(ends[0], &flushed, sizeof(flushed)), ssize_t{sizeof(flushed)});
    std::this_thread::sleep_for(time);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    while (::read(ends[0], &flushed, sizeof(flushed)) == ssize_t{sizeof(flushed)}) {
    }
    ::close(ends[0]);
    return flushed;
  }
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
    const std::uint64_t flushed = train_and_kill(std::chrono::microseconds(random() % 5000));
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
