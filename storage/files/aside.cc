#include "storage/files/aside.h"

#include <fmt/format.h>

#include <cerrno>

#include "steptape/error.h"
#include "storage/files/folder.h"
#include "storage/files/replace.h"

namespace steptape::storage {

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

}  // namespace steptape::storage
