#include "tests/trace/text/text_parse.h"

#include <optional>

#include "tests/trace/text/text_parse_recording.h"
#include "trace/text/text.h"

namespace steptape::trace {
namespace {

Fact take_fact(TextReader& in) {
  Fact fact;
  fact.name = in.take_string();
  in.expect("=");
  fact.value = in.take_string();
  return fact;
}

Saved take_saved(TextReader& in) {
  Saved saved;
  saved.path = in.take_string();
  if (in.accept("=")) {
    saved.number = in.take_value();
    return saved;
  }
  in.expect("address");
  saved.address_mod_64 = static_cast<std::uint8_t>(in.take_number("an address remainder", 255));
  if (in.accept("content")) saved.content = in.take_bytes();
  return saved;
}

Step take_step(TextReader& in) {
  Step step;
  step.name = in.take_string();
  in.expect("at");
  step.place = in.take_string();
  return step;
}

/// A line that belongs to the trace itself; false when its first word says otherwise.
bool parse_trace_line(TextReader& in, Trace& trace) {
  if (in.accept("producer")) {
    trace.producer.push_back(take_fact(in));
  } else if (in.accept("run")) {
    trace.run.push_back(take_fact(in));
  } else if (in.accept("environment")) {
    trace.environment.push_back(take_fact(in));
  } else if (in.accept("saved")) {
    trace.state.push_back(take_saved(in));
  } else if (in.accept("step")) {
    trace.steps.push_back(take_step(in));
  } else {
    return false;
  }
  in.expect_end_of_line();
  return true;
}

}  // namespace

Trace parse(std::string_view text) {
  Trace trace;
  TextReader in(text);
  if (!in.next_line()) in.fail("`steptape trace 1`");
  for (std::string_view word : {"steptape", "trace", "1"}) in.expect(word);
  in.expect_end_of_line();
  std::optional<RecordingParser> recording;
  while (in.next_line()) {
    if (recording && recording->parse_line()) continue;
    if (parse_trace_line(in, trace)) {
      recording.reset();
    } else if (!trace.steps.empty() && in.accept("recording")) {
      recording.emplace(in, trace.steps.back().recordings.emplace_back());
    } else {
      in.fail(trace.steps.empty() ? "a line of a trace, or a step line before this one"
                                  : "a line of a trace or recording");
    }
  }
  return trace;
}

Recording parse_recording(std::string_view text) {
  Recording recording;
  TextReader in(text);
  if (!in.next_line()) in.fail("`recording`");
  in.expect("recording");
  RecordingParser parser(in, recording);
  while (in.next_line()) {
    if (!parser.parse_line()) in.fail("a line of a recording");
  }
  return recording;
}

std::string with_digests(std::string text) {
  constexpr std::size_t kDigits = 32;
  for (std::size_t at = 0; (at = text.find('@', at)) != std::string::npos;) {
    const std::size_t end = text.find_first_not_of("0123456789", at + 1);
    const std::string number = text.substr(at + 1, end - at - 1);
    text.replace(at, end - at, std::string(kDigits - number.size(), '0') + number);
  }
  return text;
}

}  // namespace steptape::trace
