#include "session/observe/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>
#include <system_error>

#include "steptape/error.h"

namespace steptape::session {
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
