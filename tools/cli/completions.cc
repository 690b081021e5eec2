#include "tools/cli/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <span>

#include "tools/cli/command_outline.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

using Outlines = std::vector<CommandOutline>;

std::span<const CommandOutline> subcommands(const Outlines& commands) {
  return std::span(commands).subspan(1);
}

/// In single quotes; `quote` stands for one inside of them.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string(quote) : std::string(1, c);
  return out + "'";
}

std::string names_of(const CommandOutline& command) {
  std::string names;
  for (const OptionOutline& option : command.options) {
    if (option.is_positional) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " ", fmt::join(option.names, " "));
  }
  return names;
}

/// What bash matches the command and the word before with, and what it then offers.
std::string bash_choices(const Outlines& commands) {
  std::string cases;
  for (const CommandOutline& command : subcommands(commands)) {
    for (const OptionOutline& option : command.options) {
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names) {
        cases +=
            fmt::format("    {}:{}) choices='{}' ;;\n", command.name,
                        option.is_positional ? command.name : name, fmt::join(option.choices, " "));
      }
    }
  }
  return cases;
}

/// `text` where zsh gives ":", "[" and "]" a meaning.
std::string for_zsh(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// What zsh offers for a value.
std::string zsh_values(const OptionOutline& option) {
  return option.choices.empty() ? "_files" : fmt::format("({})", fmt::join(option.choices, " "));
}

std::string zsh_arguments(const CommandOutline& command) {
  std::string text;
  for (const OptionOutline& option : command.options) {
    for (const std::string& name : option.names) {
      std::string words = fmt::format("{}[{}]", name, for_zsh(option.description));
      if (option.takes_value) words += ":value:" + zsh_values(option);
      if (option.is_positional) words = fmt::format(":{}:{}", name, zsh_values(option));
      text += " \\\n        " + quoted(words, R"('\'')");
    }
  }
  return text;
}

std::string fish_option(const CommandOutline& command, const OptionOutline& option) {
  std::string text =
      fmt::format("complete -c steptape -n '__fish_seen_subcommand_from {}'", command.name);
  if (!option.is_positional) {
    for (const std::string& name : option.names) {
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (option.takes_value) text += " -r";
  }
  if (!option.choices.empty()) {
    text += fmt::format(" -f -a '{}'", fmt::join(option.choices, " "));
  }
  return fmt::format("{} -d {}\n", text, quoted(option.description, R"(\')"));
}

}  // namespace

std::string bash_script(const Outlines& commands) {
  std::string names;
  std::string options;
  for (const CommandOutline& command : subcommands(commands)) {
    names += command.name + " ";
    options += fmt::format("    {}) options='{}' ;;\n", command.name, names_of(command));
  }
  return fmt::format(
      "_steptape() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
      "  local options= choices=\n"
      "  case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "  case ${{COMP_WORDS[1]}}:$before in\n{}  esac\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    choices='{}{}'\n"
      "  elif [[ $word == -* ]]; then\n"
      "    choices=$options\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$word\")\n"
      "}}\n"
      "complete -o default -F _steptape steptape\n",
      options, bash_choices(commands), names, names_of(commands[0]));
}

std::string zsh_script(const Outlines& commands) {
  std::string names;
  std::string cases;
  for (const CommandOutline& command : subcommands(commands)) {
    names += fmt::format("    {}\n",
                         quoted(for_zsh(command.name) + ":" + command.description, R"('\'')"));
    cases +=
        fmt::format("    {})\n      _arguments -s{} ;;\n", command.name, zsh_arguments(command));
  }
  return fmt::format(
      "#compdef steptape\n"
      "_steptape() {{\n"
      "  local -a commands=(\n{}  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "if [[ $funcstack[1] == _steptape ]]; then\n"
      "  _steptape \"$@\"\n"
      "else\n"
      "  compdef _steptape steptape\n"
      "fi\n",
      names, cases);
}

std::string fish_script(const Outlines& commands) {
  std::string text;
  for (const CommandOutline& command : subcommands(commands)) {
    text += fmt::format("complete -c steptape -n __fish_use_subcommand -f -a {} -d {}\n",
                        command.name, quoted(command.description, R"(\')"));
    for (const OptionOutline& option : command.options) {
      if (option.is_positional && option.choices.empty()) continue;
      text += fish_option(command, option);
    }
  }
  return text;
}

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
