#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/cli/trace_choice.h"
#include "tools/diff/comparison.h"
#include "tools/report/report_data.h"

namespace steptape::tools {
namespace {

/// Characters that mean something to HTML stand only in strings of JSON, where they can be escaped.
void append_escaped(std::string& page, char c) {
  switch (c) {
    case '<':
      page += "\\u003c";
      break;
    case '>':
      page += "\\u003e";
      break;
    case '&':
      page += "\\u0026";
      break;
    default:
      page += c;
  }
}

/// One HTML page that shows `data`. Names in a trace are untrusted: nothing in the data can end the
/// element that holds it.
std::string report_page(const Json& data) {
  constexpr int kOneLine = -1;
  constexpr bool kAsciiAlone = true;
  const std::string json = data.dump(kOneLine, ' ', kAsciiAlone, Json::error_handler_t::replace);
  std::string page(page_before_data());
  page.reserve(page.size() + json.size() + json.size() / 16 + page_behind_data().size());
  for (const char c : json) append_escaped(page, c);
  page += page_behind_data();
  return page;
}

struct ReportOptions {
  std::string a, b;
  std::string step;
  std::vector<std::string> controls;
  std::string out;
  bool partial = false;
};

trace::Trace open(const std::string& path, const ReportOptions& options) {
  trace::Trace trace = open_trace(path, options.partial ? Parts::kWhatIsLeft : Parts::kAll);
  return options.step.empty() ? trace : with_step_alone(std::move(trace), options.step);
}

ReportedTrace reported(const std::filesystem::path& path, const trace::Trace& trace) {
  return {path.filename().string(), std::filesystem::file_size(path), &trace};
}

std::string page(const ReportOptions& options) {
  const trace::Trace a = open(options.a, options);
  if (options.b.empty()) {
    const Progress progress("making the page");
    return report_page(report_data(reported(options.a, a), nullptr));
  }
  const trace::Trace b = open(options.b, options);
  std::vector<trace::Trace> controls;
  for (const std::string& path : options.controls)
    controls.push_back(open_trace(path, Parts::kAll));
  const Progress progress("making the page");
  const ReportedDiff other = {reported(options.b, b), diff::compare(a, b, {}, controls)};
  return report_page(report_data(reported(options.a, a), &other));
}

}  // namespace

void add_report(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("report", "Make one HTML page of a trace, or of two side by side");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("A", options->a, "A trace")->required();
  CLI::Option* b = command->add_option("B", options->b, "Another, to be compared with it");
  command->add_option("-o,--output", options->out, "The page; without it, the standard output");
  command->add_option("--step", options->step, "Only the step of this name");
  add_control_option(*command, options->controls)->needs(b);
  command->add_flag("--partial", options->partial, "Show what is left of a damaged file");
  command->footer(
      "The page holds the names, shapes and numbers of the trace, no tensor bytes. It needs no\n"
      "network and runs nothing but its own script.\n"
      "Examples:\n"
      "  steptape report run.tape -o report.html\n"
      "  steptape report monday.tape tuesday.tape -o diff.html");
  command->callback([options, &exit_code] {
    put_result(page(*options), options->out);
    exit_code = kGood;
  });
}

}  // namespace steptape::tools
