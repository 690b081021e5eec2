#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/cli/commands.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

// What the command line offers, as its own help tells it: for completions and the manual.

struct OptionOutline {
  std::vector<std::string> names;  ///< "-o", "--output"; of an argument by position, "FILE"
  std::string description;
  bool is_positional = false;
  bool is_required = false;
  bool takes_value = false;
  std::vector<std::string> choices;  ///< the values that it takes; empty: any
};

struct CommandOutline {
  std::string name;
  std::string description;
  std::string footer;  ///< examples and exit status
  std::vector<OptionOutline> options;
};

using Outlines = std::vector<CommandOutline>;

std::vector<const CLI::App*> below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// The words of "TEXT:{auto,always,never}", as the help shows a choice.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline outline;
  for (const std::string& name : option.get_snames()) outline.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) outline.names.push_back("--" + name);
  outline.is_positional = outline.names.empty();
  if (outline.is_positional) outline.names.push_back(option.get_name(true));
  outline.description = option.get_description();
  outline.is_required = option.get_required();
  outline.takes_value = option.get_items_expected_max() > 0;
  if (outline.takes_value) outline.choices = choices_of(option);
  return outline;
}

/// Options of a command, those of its groups too, which are apps without a name and have a help of
/// their own that nobody can ask for.
void add_options(const CLI::App& app, std::vector<OptionOutline>& options) {
  for (const CLI::Option* option : app.get_options()) {
    const bool is_help_of_group = app.get_name().empty() && option == app.get_help_ptr();
    if (!is_help_of_group) options.push_back(outline_of(*option));
  }
  for (const CLI::App* group : below(app)) {
    if (group->get_name().empty()) add_options(*group, options);
  }
}

CommandOutline command_of(const CLI::App& app) {
  CommandOutline outline = {app.get_name(), app.get_description(), app.get_footer(), {}};
  add_options(app, outline.options);
  return outline;
}

/// Of `app` itself, then of each of its subcommands.
Outlines outline_of(const CLI::App& app) {
  Outlines outlines = {command_of(app)};
  for (const CLI::App* command : below(app)) {
    if (!command->get_name().empty()) outlines.push_back(command_of(*command));
  }
  return outlines;
}

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

// Scripts with which a shell completes `steptape`: commands, their options, the values of options
// that take one of a few, and names of files anywhere else.

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

/// Works from a folder of $fpath as well as sourced.
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

}  // namespace

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
    const Outlines commands = outline_of(app);
    if (*shell == "bash") put(bash_script(commands));
    if (*shell == "zsh") put(zsh_script(commands));
    if (*shell == "fish") put(fish_script(commands));
    exit_code = kGood;
  });
}

namespace {

/// Text for roff: no line begins a request, and dashes and backslashes stand for themselves.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string names_of(const OptionOutline& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
  return names + (option.takes_value && !option.is_positional ? " VALUE" : "");
}

std::string usage_of(const CommandOutline& command) {
  std::string usage = "steptape " + command.name;
  for (const OptionOutline& option : command.options) {
    if (!option.is_positional) continue;
    usage += option.is_required ? " " + option.names[0] : " [" + option.names[0] + "]";
  }
  return usage + " [OPTIONS]";
}

std::string options_of(const CommandOutline& command) {
  std::string text;
  for (const OptionOutline& option : command.options) {
    text += fmt::format(".TP\n.B {}\n{}\n", roff(names_of(option)), roff(option.description));
  }
  return text;
}

std::string verbatim(const std::string& text) {
  return text.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", roff(text));
}

std::string manual(const Outlines& commands) {
  std::string text = fmt::format(
      ".TH STEPTAPE 1 \"\" \"steptape {}\" \"User Commands\"\n"
      ".SH NAME\nsteptape \\- record, replay and compare training steps\n"
      ".SH SYNOPSIS\n.B steptape\nCOMMAND [ARGUMENTS] [OPTIONS]\n"
      ".SH DESCRIPTION\n{}\n{}.SH COMMANDS\n",
      STEPTAPE_VERSION, roff(commands[0].description), options_of(commands[0]));
  for (std::size_t i = 1; i < commands.size(); ++i) {
    const CommandOutline& command = commands[i];
    text +=
        fmt::format(".SS {}\n{}\n.PP\n.B {}\n{}{}", roff(command.name), roff(command.description),
                    roff(usage_of(command)), options_of(command), verbatim(command.footer));
  }
  return text + ".SH EXIT STATUS\n" + verbatim(commands[0].footer);
}

}  // namespace

void add_manual(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page, in roff");
  command->footer("Examples:\n  steptape manual | man -l -");
  command->callback([&app, &exit_code] {
    put(manual(outline_of(app)));
    exit_code = kGood;
  });
}

}  // namespace steptape::tools
