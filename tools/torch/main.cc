#include <CLI/CLI.hpp>

#include "tools/torch/bench.h"
#include "tools/torch/replay.h"
#include "tools/torch/verify.h"

int main(int argc, char** argv) {
  CLI::App app{"The subcommands of steptape that need LibTorch", "steptape"};
  app.require_subcommand(1);
  int exit_code = 0;
  steptape::tools::add_bench(app, exit_code);
  steptape::tools::add_replay(app, exit_code);
  steptape::tools::add_verify(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
