#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSilence{1};
constexpr std::chrono::milliseconds kBetweenLines{200};
constexpr const char* kWipe = "\r\x1b[K";  // to the first column, and empty from there on

/// When the command's first job began.
Clock::time_point start() {
  static const Clock::time_point start = Clock::now();
  return start;
}

bool is_wanted() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (terminal == nullptr || terminal != std::string("dumb"));
}

/// The terminal's; a line that is longer could not be wiped.
std::size_t columns() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsual;
}

/// As many of its bytes as surely fit, no character cut in two.
std::string_view fitting(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0U) == 0x80U) --most;
  return text.substr(0, most);
}

}  // namespace

Progress::Progress(const std::string& activity) : activity_(shown(activity)) {
  start();
  if (is_wanted()) thread_ = std::thread([this] { run(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  const auto has_ended = [this] { return has_ended_; };
  if (ended_.wait_until(lock, start() + kSilence, has_ended)) return;
  draw();
  while (!ended_.wait_for(lock, kBetweenLines, has_ended)) draw();
  std::fputs(kWipe, stderr);
}

void Progress::draw() const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start());
  const std::string end = fmt::format(" ... {} s", seconds.count());
  const std::size_t room = columns();
  const std::string_view head = fitting(activity_, room > end.size() ? room - end.size() - 1 : 0);
  std::fputs(fmt::format("{}{}{}", kWipe, head, end).c_str(), stderr);
}

}  // namespace steptape::tools
