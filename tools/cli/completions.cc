#include <CLI/CLI.hpp>
#include <memory>

#include "tools/cli/command_outline.h"
#include "tools/cli/commands.h"
#include "tools/cli/completion_script.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"

namespace steptape::tools {

void add_completions(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("completions", "Print a script with which a shell completes commands");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Installing Steptape lays them down where the shells look for them.\n"
      "Examples:\n"
      "  steptape completions bash > ~/.local/share/bash-completion/completions/steptape\n"
      "  steptape completions zsh > \"${fpath[1]}/_steptape\"\n"
      "  steptape completions fish > ~/.config/fish/completions/steptape.fish");
  command->callback([&app, shell, &exit_code] {
    const std::vector<CommandOutline> commands = outline_of(app);
    if (*shell == "bash") put(bash_script(commands));
    if (*shell == "zsh") put(zsh_script(commands));
    if (*shell == "fish") put(fish_script(commands));
    exit_code = kGood;
  });
}

}  // namespace steptape::tools
