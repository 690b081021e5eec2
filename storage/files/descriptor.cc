#include "storage/files/descriptor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "steptape/error.h"

namespace steptape::storage {

OwningProcess::OwningProcess() noexcept : number_(::getpid()) {}

bool OwningProcess::is_this_one() const noexcept { return ::getpid() == number_; }

void OwningProcess::require_this_one(const std::filesystem::path& path) const {
  if (is_this_one()) return;
  throw Error(
      ErrorCode::kFailedPrecondition,
      fmt::format("{} belongs to the process that this one was forked from", path.string()));
}

Folder::Folder(FileSystem& files, const std::filesystem::path& file)
    : files_(files),
      file_(file),
      folder_(files, files.open(file.has_parent_path() ? file.parent_path() : ".",
                                FileSystem::Access::kFolder)) {
  require_done(folder_.number(), "open the folder of", file_);
}

void Folder::sync() const {
  const int result = files_.sync(folder_.number());
  if (result != -EINVAL) require_done(result, "sync the folder of", file_);
}

std::filesystem::path behind_links(FileSystem& files, std::filesystem::path path) {
  constexpr int kMaxLinks = 40;
  for (int i = 0; i < kMaxLinks; ++i) {
    std::filesystem::path target;
    const int result = files.read_link(path, target);
    if (result == -EINVAL || result == -ENOENT) break;
    require_done(result, "look at", path);
    path = path.parent_path() / target;
  }
  return path;
}

}  // namespace steptape::storage
