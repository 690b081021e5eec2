#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/storage/figures.h"
#include "tests/storage/generation.h"

namespace steptape::storage {
namespace {

/// A process that writes generations until it is killed.
class Writer {
 public:
  Writer(const std::filesystem::path& path, std::uint64_t first) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const std::string number = std::to_string(first);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::execl(STEPTAPE_WRITE_GENERATIONS, STEPTAPE_WRITE_GENERATIONS, path.c_str(), number.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "the writer did not begin";
    ::close(ends[0]);
  }
  /// Whether it was still writing.
  bool kill() const {
    ::kill(process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = -1;
};

class KillTest : public TraceFileTest {
 protected:
  /// What killed writers left beside the trace; removes it.
  std::size_t remove_temporaries() const {
    std::size_t count = 0;
    for (const std::string& name : names_in_folder()) {
      if (name != path_.filename()) count += std::filesystem::remove(folder_ / name) ? 1 : 0;
    }
    return count;
  }
};

TEST_F(KillTest, AKilledWriterLeavesAWholeGenerationAndNeverAnOlderOne) {
  const std::size_t kills = amount("STEPTAPE_KILLS", 200);
  std::mt19937_64 random(kills);
  std::uint64_t newest = 0;
  std::size_t temporaries = 0;
  write(generation(newest), path_);
  for (std::size_t i = 0; i < kills; ++i) {
    const Writer writer(path_, newest + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    ASSERT_TRUE(writer.kill());
    const trace::Trace found = read(path_);
    ASSERT_GE(generation_of(found), newest);
    newest = generation_of(found);
    ASSERT_EQ(found, generation(newest));
    if (i % 50 == 0) temporaries += remove_temporaries();
  }
  temporaries += remove_temporaries();
  EXPECT_GT(temporaries, 0u) << "no writer was killed while it wrote";
  EXPECT_GT(newest, 0u);
  tell("kills", kills);
  tell("generations_written", newest);
  tell("kills_in_the_middle_of_a_write", temporaries);
}

}  // namespace
}  // namespace steptape::storage
