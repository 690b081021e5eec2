#pragma once

#include <string>
#include <vector>

#include "tools/cli/command_outline.h"

/// Scripts with which a shell completes `steptape`: commands, their options, the values of options
/// that take one of a few, and names of files anywhere else. `commands` are those of `outline_of`.
namespace steptape::tools {

std::string bash_script(const std::vector<CommandOutline>& commands);
/// Works from a folder of $fpath as well as sourced.
std::string zsh_script(const std::vector<CommandOutline>& commands);
std::string fish_script(const std::vector<CommandOutline>& commands);

}  // namespace steptape::tools
