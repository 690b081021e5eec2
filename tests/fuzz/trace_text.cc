#include "steptape/error.h"
#include "tests/fuzz/target.h"
#include "tests/trace/text/text_parse.h"
#include "trace/compare/guard_list.h"
#include "trace/text/text.h"

/// Any text is parsed or refused. A trace that is valid besides is printed as it is, and can be
/// looked at.
namespace steptape::fuzz {
namespace {

/// None where `action` throws an error of this code, the only one it may throw.
template <typename Action>
bool succeeds(ErrorCode code, Action&& action) try {
  action();
  return true;
} catch (const Error& error) {
  require(error.code() == code, std::string("no error but one of the text: ") + error.what());
  return false;
}

void look_at(std::string_view text) {
  trace::Trace trace;
  if (!succeeds(ErrorCode::kInvalidArgument, [&] { trace = trace::parse(text); })) return;
  if (!succeeds(ErrorCode::kDataLoss, [&] { trace::validate(trace); })) return;
  const std::string printed = trace::print(trace, trace::Contents::kBytes);
  require(trace::parse(printed) == trace, "what is printed parses to the same trace");
  require(!trace::print(trace, trace::Contents::kDigests).empty(), "a trace prints");
  for (const trace::Step& step : trace.steps) {
    for (const trace::Recording& recording : step.recordings) trace::guards_of(recording);
  }
}

}  // namespace
}  // namespace steptape::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), bytes);
  steptape::fuzz::look_at(text);
  return 0;
}
