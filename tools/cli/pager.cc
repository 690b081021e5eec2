#include "tools/cli/pager.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

/// What the shell says when there is no such command.
constexpr int kNotFound = 127 << 8;

std::string pager() {
  const char* wanted = std::getenv("PAGER");
  if (wanted == nullptr) return "less -FRX";
  return wanted == std::string("cat") ? "" : wanted;
}

}  // namespace

void put_paged(std::string_view text, Paging paging) {
  const std::string command = pager();
  const bool is_paged =
      paging == Paging::kOnTerminal && !command.empty() && ::isatty(STDOUT_FILENO) == 1;
  if (!is_paged) return put(text);
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  std::FILE* pipe = ::popen(command.c_str(), "w");
  bool is_shown = pipe != nullptr;
  if (is_shown) {
    std::fwrite(text.data(), 1, text.size(), pipe);
    is_shown = ::pclose(pipe) != kNotFound;
  }
  ::signal(SIGPIPE, before);
  if (!is_shown) put(text);
}

}  // namespace steptape::tools
