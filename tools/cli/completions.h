#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

/// What the command line offers, as its own help tells it: for completions and the manual.
namespace steptape::tools {

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

/// Of `app` itself, then of each of its subcommands.
std::vector<CommandOutline> outline_of(const CLI::App& app);

// Scripts with which a shell completes `steptape`: commands, their options, the values of options
// that take one of a few, and names of files anywhere else. `commands` are those of `outline_of`.

std::string bash_script(const std::vector<CommandOutline>& commands);
/// Works from a folder of $fpath as well as sourced.
std::string zsh_script(const std::vector<CommandOutline>& commands);
std::string fish_script(const std::vector<CommandOutline>& commands);

}  // namespace steptape::tools
