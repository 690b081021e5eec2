#include "tools/cli/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <stdexcept>

#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// A process whose standard error is a terminal, and what it wrote there.
class ProgressTest : public ToolTest {
 protected:
  void start(const std::function<void()>& job, std::uint16_t columns = 80) {
    winsize size{24, columns, 0, 0};
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    ::setenv("TERM", "xterm", 0);
    job();
    std::fputs("done", stderr);
    ::_exit(0);
  }
  /// Reads until `text` is there, or, without one, until the process has ended.
  std::string read_until(const std::optional<std::string>& text) {
    std::array<char, 256> bytes{};
    while (!text || !written_.ends_with(*text)) {
      const ssize_t count = ::read(terminal_, bytes.data(), text ? 1 : bytes.size());
      if (count <= 0) break;  // EIO when the other end is closed
      written_.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return written_;
  }
  std::string all() {
    read_until(std::nullopt);
    ::close(terminal_);
    ::waitpid(child_, nullptr, 0);
    return written_;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string written_;
};

/// Blocks until the other end of the pipe writes or goes.
void wait_for(const std::array<int, 2>& pipe) {
  char byte = 0;
  static_cast<void>(::read(pipe[0], &byte, 1));
}

TEST_F(ProgressTest, ALongJobSaysWhatItIsAtAndLeavesNothingBehind) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  start([&] {
    const Progress progress("reading run.tape");
    wait_for(gate);
  });
  EXPECT_THAT(read_until("1 s"), StartsWith("\r\x1b[Kreading run.tape ... 1 s"));
  EXPECT_THAT(read_until("2 s"), EndsWith("\r\x1b[Kreading run.tape ... 2 s"));
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  EXPECT_THAT(all(), EndsWith("\r\x1b[Kdone"));
}

TEST_F(ProgressTest, AShortJobSaysNothing) {
  start([] { const Progress progress("reading run.tape"); });
  EXPECT_EQ(all(), "done");
}

TEST_F(ProgressTest, TheSecondCountsFromTheFirstJobOfTheCommand) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  start([&] {
    {
      const Progress progress("reading a.tape");
      wait_for(gate);
    }
    const Progress progress("reading b.tape");
    wait_for(gate);
  });
  read_until("a.tape ... 1 s");
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  EXPECT_THAT(read_until("b.tape ... "), HasSubstr("\r\x1b[K\r\x1b[Kreading b.tape ... "));
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  all();
}

TEST_F(ProgressTest, AnErrorFindsTheLineEmpty) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  start([&] {
    try {
      const Progress progress("reading run.tape");
      wait_for(gate);
      throw std::runtime_error("damaged");
    } catch (const std::runtime_error& error) {
      std::fputs(error.what(), stderr);
    }
  });
  read_until("1 s");
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  EXPECT_THAT(all(), EndsWith("\r\x1b[Kdamageddone"));
}

TEST_F(ProgressTest, ALineIsNoLongerThanTheTerminalIsWide) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  start(
      [&] {
        const Progress progress("reading \u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9");
        wait_for(gate);
      },
      20);
  EXPECT_EQ(read_until("1 s"), "\r\x1b[Kreading \u00e9 ... 1 s");
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  all();
}

TEST_F(ProgressTest, NamesCannotMoveTheCursor) {
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe(gate.data()), 0);
  start([&] {
    const Progress progress("reading \x1b[2J");
    wait_for(gate);
  });
  EXPECT_EQ(read_until("1 s"), "\r\x1b[Kreading \\x1b[2J ... 1 s");
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  all();
}

TEST_F(ProgressTest, ATerminalThatCannotWipeGetsNothing) {
  start([] {
    ::setenv("TERM", "dumb", 1);
    const Progress progress("reading run.tape");
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  });
  EXPECT_EQ(all(), "done");
}

TEST_F(ProgressTest, NothingIsSaidWhereTheStandardErrorIsNoTerminal) {
  const std::string out = folder_ / "err";
  start([&] {
    const int file = ::open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    const int terminal = ::dup(STDERR_FILENO);
    ::dup2(file, STDERR_FILENO);
    {
      const Progress progress("reading run.tape");
      std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    }
    ::dup2(terminal, STDERR_FILENO);
  });
  EXPECT_EQ(all(), "done");
  EXPECT_EQ(std::filesystem::file_size(out), 0u);
}

TEST_F(ProgressTest, QuickCommandsSayNothingOnATerminal) {
  start([&] {
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    ::execl(STEPTAPE_TOOL, STEPTAPE_TOOL, "check", path_.c_str(), nullptr);
  });
  EXPECT_EQ(all(), "");
}

}  // namespace
}  // namespace steptape::tools
