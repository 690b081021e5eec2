#pragma once

#include <CLI/App.hpp>
#include <string_view>

/// The commands of `steptape-torch`, the second executable, which links LibTorch.
namespace steptape::tools {

bool is_torch_command(std::string_view command);
/// Becomes `steptape-torch` with the same arguments. It is looked for in $STEPTAPE_TORCH_TOOL,
/// beside this executable and in ../libexec/steptape. Returns, with an exit code, only when there
/// is none.
int run_torch_tool(char** argv);
/// Lists the commands in the help of `app`.
void describe_torch_commands(CLI::App& app);

}  // namespace steptape::tools
