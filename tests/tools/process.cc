#include "tests/tools/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "storage/trace/writer.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void redirect(int descriptor, const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
}

}  // namespace

std::string golden(const std::string& name) {
  return contents_of(std::string(STEPTAPE_SOURCE_DIR) + "/tests/tools/golden/" + name);
}

Outcome run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder, const Environment& environment) {
  const std::string out = folder / "stdout";
  const std::string err = folder / "stderr";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    redirect(STDOUT_FILENO, out);
    redirect(STDERR_FILENO, err);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents_of(out), contents_of(err)};
}

ToolTest::ToolTest() {
  std::string pattern = std::filesystem::temp_directory_path() / "steptape.XXXXXX";
  folder_ = ::mkdtemp(pattern.data());
  path_ = folder_ / "run.tape";
  rewrite(test::train_trace());
}

ToolTest::~ToolTest() { std::filesystem::remove_all(folder_); }

void ToolTest::rewrite(const trace::Trace& trace) const { storage::write(trace, path_); }

void ToolTest::flip(std::int64_t at) const {
  std::string bytes = contents_of(path_);
  char& byte = bytes[static_cast<std::size_t>(at < 0 ? std::ssize(bytes) + at : at)];
  byte = static_cast<char>(byte ^ 1);
  std::ofstream(path_, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

}  // namespace steptape::tools
