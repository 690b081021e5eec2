#pragma once

#include <cstdint>

#include "steptape/options.h"
#include "steptape/pack.h"

namespace steptape::session {

/// Which calls of one step Options::record asks for.
class RecordSchedule {
 public:
  /// Throws Error (invalid_argument) for a signal that cannot be handled.
  explicit RecordSchedule(const Record& record);

  bool is_empty() const { return is_empty_; }
  /// Whether the call that begins is to be recorded; `call` is its number over the whole run,
  /// from 1.
  bool wants(std::uint64_t call);
  /// What a call returned.
  void note(const pack::Results& results);

 private:
  bool has_signal();

  Record record_;
  bool is_empty_;
  std::uint64_t signals_seen_ = 0;
  bool was_nonfinite_ = false;  ///< the newest call
  bool is_due_ = false;         ///< whatever the number of the next call is
};

/// Starts to count how often the process gets `signal`, for as long as it runs; a handler that was
/// there before is called all the same. Throws Error (invalid_argument) for a signal that cannot be
/// handled. Any thread, as often as wanted.
void count_signal(int signal);

/// How often it came since.
std::uint64_t times_of_signal(int signal) noexcept;

}  // namespace steptape::session
