#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"
#include "tools/cli/torch_tool.h"

namespace {

using namespace steptape::tools;

int run(int argc, char** argv) {
  CLI::App app("Looks into the traces that Steptape records, and replays them.", "steptape");
  app.set_version_flag("--version", "steptape " STEPTAPE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 good, 1 differs or damaged, 2 trouble.\n"
      "`steptape COMMAND --help` shows a command's options and examples.");
  int exit_code = kGood;
  add_record(app, exit_code);
  add_info(app, exit_code);
  add_dump(app, exit_code);
  add_check(app, exit_code);
  add_diff(app, exit_code);
  add_bisect(app, exit_code);
  add_report(app, exit_code);
  add_ledger(app, exit_code);
  add_export(app, exit_code);
  add_extract(app, exit_code);
  add_merge(app, exit_code);
  add_completions(app, exit_code);
  add_manual(app, exit_code);
  describe_torch_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error, std::cout, std::cerr) == 0 ? kGood : kTrouble;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && is_torch_command(argv[1])) return run_torch_tool(argv);
  try {
    const int exit_code = run(argc, argv);
    return flush_output() ? exit_code : kTrouble;
  } catch (const std::exception& error) {
    complain(error);
    return kTrouble;
  }
}
