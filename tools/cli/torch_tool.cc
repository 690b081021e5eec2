#include "tools/cli/torch_tool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"

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

}  // namespace

bool is_torch_command(std::string_view command) {
  return std::ranges::find(kCommands, command, &Command::name) != kCommands.end();
}

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

void describe_torch_commands(CLI::App& app) {
  for (const Command& command : kCommands) {
    app.add_subcommand(std::string(command.name), std::string(command.description));
  }
}

}  // namespace steptape::tools
