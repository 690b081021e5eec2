#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "digits/outcome.h"
#include "steptape/stats.h"

/// Two runs of one training side by side: what the examples print and what they insist on.
namespace examples {

using digits::Outcome;

/// A stretch of training: what it left behind and how long its steps took.
struct Run {
  Outcome outcome;
  std::vector<double> microseconds;  ///< of each step that counts
  /// Asked after each step.
  std::function<bool()> counts = [] { return true; };

  /// Calls `step`, keeps its time and gives its result.
  template <typename Step>
  auto timed(const Step& step) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    auto result = step();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (counts()) microseconds.push_back(took.count());
    return result;
  }
};

/// For Run::counts: whether the newest call of `step`, a steptape::Step, was replayed.
template <typename Step>
std::function<bool()> was_replayed(const Step& step) {
  return [step, before = std::uint64_t{0}]() mutable {
    const std::uint64_t replayed = step.stats().replayed;
    const bool moved = replayed != before;
    before = replayed;
    return moved;
  };
}

/// `outcome` without the losses of the first `steps` steps.
Outcome since(std::size_t steps, Outcome outcome);

/// The mean of the last `count` losses.
double mean_of_last(std::size_t count, const Outcome& outcome);

/// "96.7%": `value` with so many decimals and its unit.
std::string text_of(double value, int decimals, const char* unit = "");

void print_row(const char* what, const std::string& eager, const std::string& replay);
/// Times, ops, calls and memory; a row of the caller's own may follow.
void print_table(const Run& eager, const Run& replayed, const steptape::Stats& stats);

/// Prints "bit-identical to `whom`: yes", or no and the first difference. Gives what it printed.
bool report_identity(const char* whom, const Outcome& expected, const Outcome& found);
/// Whether nine in ten steps were replayed; says so when not.
bool report_replays(const steptape::Stats& stats);

}  // namespace examples
