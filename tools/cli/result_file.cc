#include "tools/cli/result_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "steptape/error.h"
#include "storage/trace/format.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

bool is_trace(const std::filesystem::path& path) {
  std::array<char, storage::kMagic.size()> start{};
  std::ifstream file(path, std::ios::binary);
  return file.read(start.data(), std::ssize(start)) &&
         std::memcmp(start.data(), storage::kMagic.data(), start.size()) == 0;
}

void write(std::string_view result, const std::filesystem::path& path) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
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
  // a device or a pipe is written as it is
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    return write(result, path);
  }
  if (is_trace(path)) {
    throw Error(
        ErrorCode::kFailedPrecondition,
        fmt::format("{} is a trace, which no result replaces: choose another name", path.string()));
  }
  const std::filesystem::path beside = fmt::format("{}.tmp.{}", path.string(), ::getpid());
  std::error_code error;
  try {
    write(result, beside);
    std::filesystem::rename(beside, path);
  } catch (const std::filesystem::filesystem_error& failed) {
    std::filesystem::remove(beside, error);
    throw Error(ErrorCode::kIo,
                fmt::format("cannot write {}: {}", path.string(), failed.code().message()));
  } catch (const Error&) {
    std::filesystem::remove(beside, error);
    throw;
  }
}

}  // namespace steptape::tools
