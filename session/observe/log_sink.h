#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

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

}  // namespace steptape::session
