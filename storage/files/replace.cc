#include "storage/files/replace.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>

#include "steptape/error.h"
#include "storage/files/descriptor.h"
#include "storage/trace/format.h"

namespace steptape::storage {
namespace {

bool begins_like_a_trace(FileSystem& files, const std::filesystem::path& path) {
  const Descriptor file(files, path, FileSystem::Access::kRead, "look into");
  std::array<std::uint8_t, kMagic.size()> start{};
  const std::int64_t count = files.read(file.number(), 0, std::as_writable_bytes(std::span(start)));
  require_done(count, "look into", path);
  return static_cast<std::size_t>(count) == start.size() && start == kMagic;
}

}  // namespace

std::uint64_t set_aside(FileSystem& files, const std::filesystem::path& path, std::uint64_t first) {
  constexpr std::uint64_t kMostNames = 10'000;
  for (std::uint64_t number = first; number < first + kMostNames; ++number) {
    const std::filesystem::path aside = fmt::format("{}.{}", path.string(), number);
    FileSystem::Status status;
    const int result = files.status_at(aside, status);
    if (result == -ENOENT) {
      require_done(files.rename(path, aside), "set aside", path);
      // Before a new file takes the name, or a loss of power may leave the new one alone.
      Folder(files, path).sync();
      return number;
    }
    require_done(result, "look at", aside);
  }
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} was left by {} others; remove them", path.string(), kMostNames));
}

std::optional<std::uint64_t> set_trace_aside(const std::filesystem::path& path, std::uint64_t first,
                                             FileSystem& files) {
  const std::filesystem::path target = behind_links(files, path);
  if (!require_replaceable(files, target)) return std::nullopt;
  return set_aside(files, target, first);
}

std::optional<std::uint32_t> require_replaceable(FileSystem& files,
                                                 const std::filesystem::path& path,
                                                 Replaces replaces) {
  FileSystem::Status status;
  const int result = files.status_at(path, status);
  if (result == -ENOENT) return std::nullopt;
  require_done(result, "look at", path);
  const bool is_trace = status.is_regular && begins_like_a_trace(files, path);
  const bool takes_traces = replaces == Replaces::kTraces;
  if (status.is_regular && is_trace == takes_traces) return status.permissions;
  const char* what = takes_traces ? "not a trace" : is_trace ? "a trace" : "not a regular file";
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} exists and is {}; it was left as it is. Choose another path or "
                          "remove it",
                          path.string(), what));
}

void keep_permissions(FileSystem& files, int descriptor, std::optional<std::uint32_t> permissions,
                      const std::filesystem::path& path) {
  if (!permissions) return;
  const int result = files.set_permissions(descriptor, *permissions);
  // A file system without permissions refuses; the trace is no worse for it.
  if (result == -EPERM || result == -EOPNOTSUPP || result == -ENOSYS) return;
  require_done(result, "keep the permissions of", path);
}

}  // namespace steptape::storage
