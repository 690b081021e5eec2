#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "session/observe/event.h"

namespace steptape::session {

/// Where the lines of logs go: stderr, or a file that they are appended to. Sessions that name one
/// file share its sink. Any thread may write, and each line is written whole. Never throws and
/// never waits for a reader: what goes wrong is said once on stderr, and the lines that it costs
/// are counted.
class LogSink {
 public:
  enum class Target { kStderr, kFile };

  static std::shared_ptr<LogSink> stderr_sink();
  /// `path` is opened to be appended to, and made if it is not there. Files and devices are
  /// written; a pipe is not, since its reader could stop the training.
  static std::shared_ptr<LogSink> file(const std::string& path);

  LogSink(Target target, std::string path);
  ~LogSink();
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

  Target target() const { return target_; }
  /// Writes `line` and an end of line.
  void write(std::string line);
  /// Why lines were lost; empty when none was.
  std::string problem() const;

  /// In the whole process.
  static std::uint64_t lines_lost() noexcept;

 private:
  /// Needs the mutex, or to be alone.
  void note_problem(const std::string& reason);

  mutable std::mutex mutex_;
  Target target_;
  std::string path_;
  int descriptor_ = -1;
  bool is_torn_ = false;  ///< the newest line broke off
  std::string problem_;
};

/// Which events a session writes down, and where. Off unless asked for; then `wants` is all that it
/// costs.
class Log {
 public:
  Log() = default;
  /// `text` is "guards,plan", "all" or "none", with ":FILE" after it for lines of JSON. Throws
  /// Error (invalid_argument) that begins with `whose` for anything else.
  Log(std::string_view text, const std::string& whose);
  /// As Options::log says, or the environment where that is empty. What the environment says wrong
  /// is said once on stderr, and nothing is logged.
  static Log open(const std::string& option);

  bool wants(Category category) const noexcept { return (wanted_ & bit_of(category)) != 0; }
  void write(const Event& event) const;
  /// Why lines were lost; empty when none was.
  std::string problem() const { return sink_ == nullptr ? "" : sink_->problem(); }

 private:
  static constexpr unsigned bit_of(Category category) noexcept {
    return 1U << static_cast<unsigned>(category);
  }
  static unsigned wanted_by(std::string_view categories, const std::string& whose);

  unsigned wanted_ = 0;
  std::shared_ptr<LogSink> sink_;
};

/// Writes "steptape: <what>" to stderr, unless the process has said the same before. Any thread.
void say_once(const std::string& what);

}  // namespace steptape::session
