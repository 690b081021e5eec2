#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <vector>

#include "tools/cli/commands.h"
#include "tools/cli/output.h"

/// The commands of `steptape-torch`, the second executable, which links LibTorch.
namespace steptape::tools {
namespace {

struct Command {
  std::string_view name;
  std::string_view description;
};
constexpr std::array kCommands = {
    Command{"bench", "Time a replay op by op, beside what each could not do without"},
    Command{"replay", "Run a recorded step without the program that recorded it"},
    Command{"verify", "Do recorded calls again, and compare the bits that each op leaves"},
};

/// The places in which the second executable may lie, in the order in which they are tried.
std::vector<std::filesystem::path> candidates() {
  if (const char* chosen = std::getenv("STEPTAPE_TORCH_TOOL")) return {chosen};
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto folder = self.parent_path();
  return {folder / "steptape-torch",
          (folder / "../libexec/steptape/steptape-torch").lexically_normal()};
}

std::string names_of(const std::vector<std::filesystem::path>& paths) {
  std::string names;
  for (const auto& path : paths) names += (names.empty() ? "" : " or ") + path.string();
  return names;
}

bool is_torch_command(std::string_view command) {
  return std::ranges::find(kCommands, command, &Command::name) != kCommands.end();
}

/// Becomes `steptape-torch` with the same arguments. It is looked for in $STEPTAPE_TORCH_TOOL,
/// beside this executable and in ../libexec/steptape. Returns, with an exit code, only when there
/// is none.
int run_torch_tool(char** argv) {
  const auto paths = candidates();
  for (const auto& path : paths) {
    ::execv(path.c_str(), argv);
    if (errno == ENOENT) continue;
    complain(fmt::format("cannot run {}: {}", path.string(), std::strerror(errno)));
    return kTrouble;
  }
  complain(
      fmt::format("`{}` needs LibTorch and is in an executable of its own, which is missing: {}. "
                  "Build the target steptape-torch, or name it in STEPTAPE_TORCH_TOOL",
                  argv[1], names_of(paths)));
  return kTrouble;
}

/// Lists the commands in the help of `app`.
void describe_torch_commands(CLI::App& app) {
  for (const Command& command : kCommands) {
    app.add_subcommand(std::string(command.name), std::string(command.description));
  }
}

int run(int argc, char** argv) {
  CLI::App app("Looks into the traces that Steptape records, and replays them.", "steptape");
  app.set_version_flag("--version", "steptape " STEPTAPE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 good, 1 differs or damaged, 2 trouble.\n"
      "`steptape COMMAND --help` shows a command's options and examples.");
  int exit_code = kGood;
  add_try(app, exit_code);
  add_record(app, exit_code);
  add_info(app, exit_code);
  add_dump(app, exit_code);
  add_check(app, exit_code);
  add_doctor(app, exit_code);
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

}  // namespace steptape::tools

int main(int argc, char** argv) {
  using namespace steptape::tools;
  if (argc > 1 && is_torch_command(argv[1])) return run_torch_tool(argv);
  try {
    const int exit_code = run(argc, argv);
    return flush_output() ? exit_code : kTrouble;
  } catch (const std::exception& error) {
    complain(error);
    return kTrouble;
  }
}
