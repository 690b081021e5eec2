#include "session/observe/log.h"

#include <chrono>
#include <cstdlib>
#include <optional>

#include "session/observe/say_once.h"
#include "steptape/error.h"

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

}  // namespace steptape::session
