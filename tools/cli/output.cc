#include "tools/cli/output.h"

#include <fmt/color.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>

#include "steptape/error.h"
#include "storage/files/atomic_file.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

/// What the shell says when there is no such command.
constexpr int kNotFound = 127 << 8;

std::string pager() {
  const char* wanted = std::getenv("PAGER");
  if (wanted == nullptr) return "less -FRX";
  return wanted == std::string("cat") ? "" : wanted;
}

bool may_colour() { return ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr; }

bool& has_colours() {
  static bool has = may_colour();
  return has;
}

fmt::text_style style_of(Tone tone) {
  switch (tone) {
    case Tone::kHeading:
      return fmt::emphasis::bold;
    case Tone::kGood:
      return fmt::fg(fmt::terminal_color::green);
    case Tone::kBad:
      return fmt::fg(fmt::terminal_color::red);
  }
  return {};
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

void put(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

bool flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  complain(fmt::format("cannot write the standard output: {}", std::strerror(errno)));
  return false;
}

void complain(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    complain(fmt::format("{}: {}", name_of(ours->code()), shown(ours->what())));
  } else {
    complain(error.what());
  }
}

void complain(std::string_view message) { fmt::print(stderr, "steptape: {}\n", message); }

void set_colours(Colours colours) {
  has_colours() = colours == Colours::kAuto ? may_colour() : colours == Colours::kAlways;
}

std::string toned(Tone tone, std::string_view text) {
  return has_colours() ? fmt::format("{}", fmt::styled(text, style_of(tone))) : std::string(text);
}

std::string shown(std::string_view name) {
  const std::string quoted = trace::in_quotes(name);
  std::string out;
  for (std::size_t i = 1; i + 1 < quoted.size(); ++i) {
    const bool escaped = quoted[i] == '\\' && (quoted[i + 1] == '"' || quoted[i + 1] == '\\');
    if (escaped) ++i;
    out += quoted[i];
  }
  return out;
}

std::string shown_module(std::string_view path) { return path.empty() ? "no module" : shown(path); }

std::string size_of(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024; size /= 1024) ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string count_of(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

namespace {

void write_as_it_is(std::string_view result, const std::filesystem::path& path) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(result.data(), std::ssize(result));
  file.close();
  if (!file) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  }
}

}  // namespace

void put_result(std::string_view result, const std::filesystem::path& path) {
  if (path.empty() || path == "-") return put(result);
  const bool is_device = std::filesystem::exists(path) && !std::filesystem::is_regular_file(path);
  if (is_device) return write_as_it_is(result, path);  // or a pipe
  storage::AtomicFile file(path, storage::operating_system(), storage::Replaces::kOtherFiles);
  file.append(std::as_bytes(std::span(result)));
  file.commit();
}

}  // namespace steptape::tools
