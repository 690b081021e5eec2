#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace steptape::tools {

/// Says on the standard error what a command is at, where that is a terminal and the command has
/// run for more than a second: one line with the seconds so far, written over in place and wiped at
/// the end, exceptions included. What is printed while one is alive lands on that line, so none is
/// alive then; nor are two at a time.
class Progress {
 public:
  /// `activity` in words: "reading run.tape". Names in it may be untrusted.
  explicit Progress(const std::string& activity);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void run();
  void draw() const;

  std::string activity_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;  ///< none where the standard error is not a terminal
};

}  // namespace steptape::tools
