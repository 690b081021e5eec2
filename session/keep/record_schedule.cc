#include "session/keep/record_schedule.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "live/contents.h"
#include "steptape/error.h"

namespace steptape::session {
namespace {

bool has_nonfinite(const pack::Results& results) {
  const auto is_nonfinite = [](const pack::Number& number) {
    const auto* real = std::get_if<double>(&number);
    return real != nullptr && !std::isfinite(*real);
  };
  return std::ranges::any_of(results.tensors, live::has_nonfinite) ||
         std::ranges::any_of(results.numbers, is_nonfinite);
}

}  // namespace

RecordSchedule::RecordSchedule(const Record& record)
    : record_(record),
      is_empty_(record.first == 0 && record.every == 0 && record.at.empty() &&
                !record.on_nonfinite && record.on_signal == 0) {
  if (record_.on_signal == 0) return;
  count_signal(record_.on_signal);
  signals_seen_ = times_of_signal(record_.on_signal);
}

bool RecordSchedule::wants(std::uint64_t call) {
  const bool is_due = std::exchange(is_due_, false);
  const bool is_told = has_signal();
  return is_due || is_told || call <= record_.first ||
         (record_.every != 0 && call % record_.every == 0) ||
         std::ranges::find(record_.at, call) != record_.at.end();
}

bool RecordSchedule::has_signal() {
  if (record_.on_signal == 0) return false;
  const std::uint64_t times = times_of_signal(record_.on_signal);
  return std::exchange(signals_seen_, times) != times;
}

void RecordSchedule::note(const pack::Results& results) {
  if (!record_.on_nonfinite) return;
  const bool is_nonfinite = has_nonfinite(results);
  is_due_ = is_due_ || (is_nonfinite && !was_nonfinite_);
  was_nonfinite_ = is_nonfinite;
}

namespace {

struct Counted {
  std::atomic<std::uint64_t> times{0};
  bool is_counted = false;
  struct sigaction before = {};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a signal handler counts");

std::array<Counted, NSIG> counted;

/// Async-signal-safe but for what the program's own handler does.
void on_signal(int signal, siginfo_t* info, void* context) {
  Counted& of = counted[static_cast<std::size_t>(signal)];
  of.times.fetch_add(1, std::memory_order_relaxed);
  if ((of.before.sa_flags & SA_SIGINFO) != 0) {
    of.before.sa_sigaction(signal, info, context);
  } else if (of.before.sa_handler != SIG_DFL && of.before.sa_handler != SIG_IGN) {
    of.before.sa_handler(signal);
  }
}

}  // namespace

void count_signal(int signal) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  // after these a program that goes on does the same again, for ever
  const bool is_fault =
      signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
  const bool exists = signal > 0 && signal < NSIG && !is_fault;
  if (exists && counted[static_cast<std::size_t>(signal)].is_counted) return;
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  // the old one first: the handler may run as soon as it is there
  const bool is_done =
      exists &&
      sigaction(signal, nullptr, &counted[static_cast<std::size_t>(signal)].before) == 0 &&
      sigaction(signal, &action, nullptr) == 0;
  if (!is_done) {
    throw Error(ErrorCode::kInvalidArgument,
                "signal " + std::to_string(signal) + " cannot be handled: " +
                    std::generic_category().message(exists ? errno : EINVAL));
  }
  counted[static_cast<std::size_t>(signal)].is_counted = true;
}

std::uint64_t times_of_signal(int signal) noexcept {
  if (signal <= 0 || signal >= NSIG) return 0;
  return counted[static_cast<std::size_t>(signal)].times.load(std::memory_order_relaxed);
}

}  // namespace steptape::session
