#include "trace/record_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "steptape/error.h"

namespace steptape::trace {
namespace {

/// A word of a request and what it switches on.
struct Switch {
  std::string_view word;
  bool& (*of)(RecordRequest&);
};

constexpr Switch kSwitches[] = {
    {"nonfinite", [](RecordRequest& r) -> bool& { return r.record.on_nonfinite; }},
    {"state", [](RecordRequest& r) -> bool& { return r.record.state; }},
    {"digests", [](RecordRequest& r) -> bool& { return r.digests; }},
    {"timings", [](RecordRequest& r) -> bool& { return r.timings; }},
    {"again", [](RecordRequest& r) -> bool& { return r.is_again; }},
};

[[noreturn]] void fail(std::string_view word, std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" {}", word, why));
}

std::uint64_t number_in(std::string_view word, std::string_view text,
                        std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || number == 0 || number > most) fail(word, "has no number from 1 after the =");
  return number;
}

void add_word(std::string_view word, RecordRequest& request) {
  for (const Switch& known : kSwitches) {
    if (word != known.word) continue;
    known.of(request) = true;
    return;
  }
  const auto equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view number = equals == word.npos ? "" : word.substr(equals + 1);
  Record& record = request.record;
  if (name == "first") {
    record.first = number_in(word, number);
  } else if (name == "every") {
    record.every = number_in(word, number);
  } else if (name == "at") {
    record.at.push_back(number_in(word, number));
  } else if (name == "signal") {
    record.on_signal = static_cast<int>(number_in(word, number, RecordRequest::kMostSignals));
  } else {
    fail(word,
         "is not known; there are first=N, every=N, at=N, signal=N, nonfinite, state, "
         "digests, timings and again");
  }
}

}  // namespace

RecordRequest RecordRequest::parse(std::string_view text) {
  RecordRequest request;
  const auto colon = text.find(':');
  if (colon != text.npos) {
    request.trace = text.substr(colon + 1);
    if (request.trace.empty()) fail(text, "names no file after the colon");
  }
  std::string_view words = text.substr(0, colon);
  while (!words.empty()) {
    const auto comma = words.find(',');
    add_word(words.substr(0, comma), request);
    words = comma == words.npos ? std::string_view() : words.substr(comma + 1);
  }
  return request;
}

std::string RecordRequest::text() const {
  std::string text;
  const auto add = [&text](std::string_view word) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", word);
  };
  if (record.first != 0) add(fmt::format("first={}", record.first));
  if (record.every != 0) add(fmt::format("every={}", record.every));
  for (const std::uint64_t call : record.at) add(fmt::format("at={}", call));
  if (record.on_signal != 0) add(fmt::format("signal={}", record.on_signal));
  RecordRequest copy = *this;
  for (const Switch& known : kSwitches) {
    if (known.of(copy)) add(known.word);
  }
  return trace.empty() ? text : text + ":" + trace;
}

void RecordRequest::add_to(Options& options, std::uint64_t number) const {
  if (options.trace.empty() && !trace.empty()) {
    options.trace = number == 1 ? trace : with_infix(trace, fmt::format("session{}", number));
  }
  if (options.trace.empty()) return;
  if (is_again) options.trace = with_infix(options.trace, "again");
  Record& to = options.record;
  to.first = std::max(to.first, record.first);
  to.at.insert(to.at.end(), record.at.begin(), record.at.end());
  if (record.every != 0) to.every = record.every;
  if (record.on_signal != 0) to.on_signal = record.on_signal;
  to.on_nonfinite |= record.on_nonfinite;
  to.state |= record.state;
  options.digests |= digests;
  options.timings |= timings;
}

std::string with_infix(const std::string& path, const std::string& infix) {
  const std::filesystem::path whole(path);
  const std::string name = whole.stem().string() + "." + infix + whole.extension().string();
  return (whole.parent_path() / name).string();
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace steptape::trace
