#include "session/observe/run_identity.h"

#include <ATen/CPUGeneratorImpl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

#include "trace/record_request.h"

namespace steptape::session {
namespace {

/// What a launcher tells each of the processes it starts.
struct Launcher {
  const char* rank;
  const char* world;
  const char* job;
};

constexpr std::array kLaunchers = {
    Launcher{"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
    Launcher{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"},
    Launcher{"PMI_RANK", "PMI_SIZE", "PMI_ID"},
};

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

std::optional<std::int64_t> number_in(const char* name) {
  const std::string_view text = variable(name);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

/// Of this process, from Linux's /proc; empty where it is longer than `kMostBytes`: a part of it
/// would be another command.
std::string command_line() {
  constexpr std::size_t kMostBytes = 4096;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string bytes(kMostBytes + 1, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  if (bytes.size() > kMostBytes) return {};
  std::string command;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\0', begin), bytes.size());
    if (begin != 0) command += ' ';
    const std::string_view word = std::string_view(bytes).substr(begin, end - begin);
    // Python's multiprocessing started it, and tells it what to do through a pipe
    if (word == "--multiprocessing-fork") return {};
    command += trace::shell_word(word);
    begin = end + 1;
  }
  return command;
}

std::string current_folder() {
  std::error_code unknown;
  return std::filesystem::current_path(unknown).string();
}

}  // namespace

RunIdentity RunIdentity::now() {
  static const std::string command = command_line();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  RunIdentity run{.host = host,
                  .pid = getpid(),
                  .start_unix_ns = std::chrono::nanoseconds(time).count(),
                  .seed = at::detail::getDefaultCPUGenerator().current_seed(),
                  .command = command,
                  .folder = current_folder()};
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = number_in(launcher.rank);
    const auto world = number_in(launcher.world);
    if (!rank || !world) continue;
    run.job = variable(launcher.job);
    if (*world <= 1) break;
    run.rank = rank;
    run.world = *world;
    break;
  }
  // what started the processes, nobody here knows
  if (run.rank || !variable("TORCHELASTIC_RUN_ID").empty()) run.command.clear();
  return run;
}

std::vector<trace::Fact> RunIdentity::facts() const {
  constexpr std::int64_t kNanosecondsInASecond = 1'000'000'000;
  std::vector<trace::Fact> facts = {
      {"host", host},
      {"pid", std::to_string(pid)},
      {"start_unix_s", std::to_string(start_unix_ns / kNanosecondsInASecond)},
      {"seed", std::to_string(seed)}};
  if (rank) {
    facts.push_back({"rank", std::to_string(*rank)});
    facts.push_back({"world", std::to_string(world)});
  }
  if (!job.empty()) facts.push_back({"job", job});
  if (!command.empty()) facts.push_back({"command", command});
  if (!folder.empty()) facts.push_back({"folder", folder});
  return facts;
}

trace::Digest RunIdentity::digest() const {
  std::string text = std::to_string(start_unix_ns);
  for (const trace::Fact& fact : facts()) text += "\n" + fact.name + "=" + fact.value;
  return trace::digest_of(std::as_bytes(std::span(text)));
}

std::string RunIdentity::own(const std::string& path) const {
  if (!rank) return path;
  return trace::with_infix(path, "rank" + std::to_string(*rank));
}

}  // namespace steptape::session
