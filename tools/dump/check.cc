#include <fmt/format.h>

#include <memory>

#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"

namespace steptape::tools {
namespace {

struct CheckOptions {
  std::string path;
  bool json = false;
};

std::string format_of(const storage::Report& report) {
  return fmt::format("{}.{}", report.format.major, report.format.minor);
}

/// A file that a newer Steptape wrote is not damaged: this build cannot tell.
void require_supported(const std::string& path) {
  try {
    static_cast<void>(storage::read(path));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) throw;
  }
}

storage::Report check(const std::string& path) {
  const Progress progress("checking " + path);
  storage::Report report = storage::check(path);
  if (!report.whole()) require_supported(path);
  return report;
}

Json report_json(const std::string& path, const storage::Report& report) {
  Json format;
  if (report.format.major != 0) format = format_of(report);
  return {{"file", path},
          {"whole", report.whole()},
          {"format", format},
          {"bytes", report.file_bytes},
          {"blocks", report.blocks},
          {"blocks_missing", report.blocks_missing},
          {"bytes_lost", report.bytes_lost},
          {"has_index", report.has_index},
          {"problems", report.problems}};
}

void show(const std::string& path, const storage::Report& report) {
  if (report.whole()) {
    put(fmt::format("{}: {}, format {}, {}, {}\n", path, toned(Tone::kGood, "whole"),
                    format_of(report), size_of(report.file_bytes),
                    count_of(report.blocks, "block")));
    return;
  }
  put(fmt::format("{}: {}: {} whole, {} missing, {} lost at the end\n", path,
                  toned(Tone::kBad, "damaged"), count_of(report.blocks, "block"),
                  report.blocks_missing, size_of(report.bytes_lost)));
  for (const std::string& problem : report.problems) put(fmt::format("  {}\n", shown(problem)));
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("check", "Say whether a trace is whole, or what is wrong");
  auto options = std::make_shared<CheckOptions>();
  command->add_option("FILE", options->path, "A trace")->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  steptape check run.tape && cp run.tape /backup\n"
      "  steptape check run.tape --json | jq -r '.problems[]'\n"
      "Exit status: 0 whole, 1 damaged, 2 the file cannot be read.");
  command->callback([options, &exit_code] {
    const storage::Report report = check(options->path);
    if (options->json) {
      put(json_text(report_json(options->path, report)));
    } else {
      show(options->path, report);
    }
    exit_code = report.whole() ? kGood : kDiffers;
  });
}

}  // namespace steptape::tools
