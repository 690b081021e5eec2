#include <fmt/format.h>

#include "tools/cli/command_outline.h"
#include "tools/cli/commands.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/output.h"

namespace steptape::tools {
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

std::string manual(const std::vector<CommandOutline>& commands) {
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
