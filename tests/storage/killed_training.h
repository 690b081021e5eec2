#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

namespace steptape::storage {

/// Says on `out` up to which call a training has flushed; ends the process where nobody listens.
inline void say_flushed(int out, std::uint64_t call) {
  if (::write(out, &call, sizeof(call)) != sizeof(call)) ::_exit(1);
}

/// Lets `train(out)`, which does not return, run in a process of its own until it first said that
/// it flushed, and for `time` after that, and kills it; the last call of which it said so.
template <typename Train>
std::uint64_t train_and_kill(std::chrono::microseconds time, Train&& train) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    train(ends[1]);
    ::_exit(1);
  }
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

}  // namespace steptape::storage
