#include <CLI/CLI.hpp>

#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "tools/torch/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"The subcommands of steptape that need LibTorch", "steptape"};
  app.require_subcommand(1);
  using namespace steptape::tools;
  int exit_code = kGood;
  add_bench(app, exit_code);
  add_replay(app, exit_code);
  add_verify(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kGood : kTrouble;
  } catch (const std::exception& error) {
    complain(error);
    return kTrouble;
  }
  return exit_code;
}
