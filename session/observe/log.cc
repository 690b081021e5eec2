#include "session/observe/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "steptape/error.h"
#include "trace/text/text.h"

namespace steptape::session {
namespace {

constexpr Category kLast = Category::kTrace;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::optional<Category> category_of(std::string_view name) {
  for (unsigned i = 0; i <= static_cast<unsigned>(kLast); ++i) {
    if (name == name_of(static_cast<Category>(i))) return static_cast<Category>(i);
  }
  return std::nullopt;
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Log::Log(std::string_view text, const std::string& whose) {
  const auto colon = text.find(':');
  wanted_ = wanted_by(text.substr(0, colon), whose);
  if (colon != std::string_view::npos && colon + 1 == text.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                whose + ": \"" + std::string(text) + "\" names no file after the colon");
  }
  if (wanted_ == 0) return;
  sink_ = colon == std::string_view::npos ? LogSink::stderr_sink()
                                          : LogSink::file(std::string(text.substr(colon + 1)));
}

Log Log::open(const std::string& option) {
  if (!option.empty()) return {option, "log"};
  const char* text = std::getenv("STEPTAPE_LOG");
  if (text == nullptr || *text == '\0') return {};
  try {
    return {text, "STEPTAPE_LOG"};
  } catch (const Error& error) {
    say_once(std::string(error.what()) + "; nothing is logged");
    return {};
  }
}

unsigned Log::wanted_by(std::string_view categories, const std::string& whose) {
  if (trimmed(categories) == "none") return 0;
  if (trimmed(categories) == "all") return (bit_of(kLast) << 1U) - 1;
  unsigned wanted = 0;
  for (;;) {
    const auto comma = categories.find(',');
    const std::string_view name = trimmed(categories.substr(0, comma));
    const auto category = category_of(name);
    if (!category) {
      throw Error(ErrorCode::kInvalidArgument,
                  whose + ": there is no category \"" + std::string(name) +
                      "\"; there are guards, plan, verify, record, refuse, trace, all and none");
    }
    wanted |= bit_of(*category);
    if (comma == std::string_view::npos) return wanted;
    categories.remove_prefix(comma + 1);
  }
}

void Log::write(const Event& event) const {
  if (sink_->target() == LogSink::Target::kFile) {
    sink_->write(json_of(event, seconds_since_epoch()));
  } else {
    sink_->write(line_of(event));
  }
}

void say_once(const std::string& what) {
  // a program with that many problems has said enough
  constexpr std::size_t kMostSaid = 64;
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;  // sessions may end after static objects
  const std::lock_guard<std::mutex> lock(mutex);
  if (said->size() >= kMostSaid || !said->insert(what).second) return;
  const std::string line = "steptape: " + trace::on_one_line(what) + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

namespace {

std::atomic<std::uint64_t> lost{0};

/// Shared by all threads and never destroyed: sessions may end after the program's static objects.
struct Shared {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LogSink>> files;
};

Shared& shared() {
  static auto* shared = new Shared;
  return *shared;
}

std::string reason_of(int error) { return std::generic_category().message(error); }

/// What is left of `text` when it can be written no further.
std::string_view written_to(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return text;
}

}  // namespace

std::shared_ptr<LogSink> LogSink::stderr_sink() {
  static auto* sink =
      new std::shared_ptr<LogSink>(std::make_shared<LogSink>(Target::kStderr, "stderr"));
  return *sink;
}

std::shared_ptr<LogSink> LogSink::file(const std::string& path) {
  const std::lock_guard<std::mutex> lock(shared().mutex);
  auto& files = shared().files;
  std::erase_if(files, [](const auto& entry) { return entry.second.expired(); });
  if (auto sink = files[path].lock()) return sink;
  auto sink = std::make_shared<LogSink>(Target::kFile, path);
  files[path] = sink;
  return sink;
}

LogSink::LogSink(Target target, std::string path) : target_(target), path_(std::move(path)) {
  if (target_ == Target::kStderr) {
    descriptor_ = STDERR_FILENO;
    return;
  }
  constexpr mode_t kMode = 0666;
  // not blocking: a pipe that nobody reads is an error and no wait
  descriptor_ =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kMode);
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    note_problem(reason_of(errno));
  } else if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
    note_problem("neither a file nor a device");
    ::close(std::exchange(descriptor_, -1));
  }
}

LogSink::~LogSink() {
  if (target_ == Target::kFile && descriptor_ >= 0) ::close(descriptor_);
}

void LogSink::write(std::string line) {
  line += '\n';
  const std::lock_guard<std::mutex> lock(mutex_);
  if (descriptor_ < 0) {
    lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (is_torn_) line.insert(0, 1, '\n');
  const std::size_t rest = written_to(descriptor_, line).size();
  if (rest == 0) {
    is_torn_ = false;
    return;
  }
  const std::string reason = reason_of(errno);
  is_torn_ = is_torn_ || rest < line.size();
  lost.fetch_add(1, std::memory_order_relaxed);
  note_problem(reason);
}

void LogSink::note_problem(const std::string& reason) {
  if (!problem_.empty()) return;
  problem_ = path_ + ": " + reason;
  say_once("log not written: " + problem_);
}

std::string LogSink::problem() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return problem_;
}

std::uint64_t LogSink::lines_lost() noexcept { return lost.load(std::memory_order_relaxed); }

}  // namespace steptape::session
