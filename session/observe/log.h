#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "session/observe/event.h"
#include "session/observe/log_sink.h"

namespace steptape::session {

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

}  // namespace steptape::session
