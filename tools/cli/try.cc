#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "steptape/error.h"
#include "tools/cli/commands.h"

/// `steptape try`: the Python package does it (python/steptape/_try.py), in the program's own
/// interpreter.
namespace steptape::tools {
namespace {

struct TryOptions {
  bool json = false, keep_going = false;
  int calls = 0;
  std::vector<std::string> command;
};

/// Where the script stands in `python -u train.py ...`, or the `-m` before a module. Throws Error
/// (invalid_argument) where there is none.
std::size_t place_of_script(const std::vector<std::string>& command) {
  const std::string name = std::filesystem::path(command[0]).filename().string();
  if (!name.starts_with("python")) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("try: {}: not a Python; a program is tried as `python train.py`", command[0]));
  }
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (!word.starts_with('-') || word == "-m") return i;
    if (word == "-c") {
      throw Error(ErrorCode::kInvalidArgument, "try: -c: put the program into a file");
    }
    if (word == "-W" || word == "-X") ++i;
  }
  throw Error(ErrorCode::kInvalidArgument, "try: no script is named");
}

/// Becomes the program, or throws.
[[noreturn]] void become_trial(const TryOptions& options) {
  const auto script =
      options.command.begin() + static_cast<std::ptrdiff_t>(place_of_script(options.command));
  std::vector<std::string> words(options.command.begin(), script);
  words.insert(words.end(), {"-m", "steptape", "try"});
  if (options.json) words.emplace_back("--json");
  if (options.keep_going) words.emplace_back("--keep-going");
  if (options.calls != 0) words.insert(words.end(), {"--calls", std::to_string(options.calls)});
  words.insert(words.end(), script, options.command.end());
  become(words);
}

}  // namespace

void add_try(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command =
      app.add_subcommand("try", "Run a Python program, and say what its training steps would gain");
  auto options = std::make_shared<TryOptions>();
  command->add_flag("--json", options->json,
                    "The result as JSON; what the program prints goes to the standard error");
  command->add_flag("--keep-going", options->keep_going, "Let the program run to its end");
  command->add_option("--calls", options->calls, "Time N steps of each kind (30)")
      ->check(CLI::PositiveNumber);
  command->add_option("COMMAND", options->command, "The program, and what it is given")->required();
  command->footer(
      "The program runs as it is, but for its training steps: some calls of them eagerly, some as\n"
      "wrapped steps. It ends when both have been timed; what it has written by then stays.\n"
      "Example:\n"
      "  steptape try -- python train.py --epochs 3\n"
      "Exit status: 0 where they replay, 1 where they do not, 2 where none was found, or the\n"
      "program failed or ended too early to tell.");
  command->callback([options] { become_trial(*options); });
}

}  // namespace steptape::tools
