#include "storage/atomic_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "steptape/error.h"
#include "storage/folder.h"
#include "storage/format.h"

namespace steptape::storage {
namespace {

bool begins_like_a_trace(FileSystem& files, const std::filesystem::path& path) {
  const Descriptor file(files, path, FileSystem::Access::kRead, "look into");
  std::array<std::uint8_t, kMagic.size()> start{};
  const std::int64_t count = files.read(file.number(), 0, std::as_writable_bytes(std::span(start)));
  require_done(count, "look into", path);
  return static_cast<std::size_t>(count) == start.size() && start == kMagic;
}

/// The permissions of the trace at `path`; none when nothing is there.
std::optional<std::uint32_t> require_replaceable(FileSystem& files,
                                                 const std::filesystem::path& path) {
  FileSystem::Status status;
  const int result = files.status_at(path, status);
  if (result == -ENOENT) return std::nullopt;
  require_done(result, "look at", path);
  if (status.is_regular && begins_like_a_trace(files, path)) return status.permissions;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} exists and is no trace; it was left as it is. Choose another path or "
                          "remove it",
                          path.string()));
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, FileSystem& files)
    : files_(files), path_(behind_links(files, path)), file_(files, -1) {
  old_permissions_ = require_replaceable(files_, path_);
  open_temporary();
}

void AtomicFile::open_temporary() {
  static std::atomic<unsigned> counter{0};
  constexpr int kMaxAttempts = 10'000;
  // A name may be taken by what a killed process of the same number left.
  int result = -EEXIST;
  for (int attempt = 0; result == -EEXIST && attempt < kMaxAttempts; ++attempt) {
    temporary_ = path_;
    temporary_ += fmt::format(".tmp.{}.{}", ::getpid(), counter++);
    // Nobody may read the new bytes who could not read the old ones.
    result = files_.open(temporary_, FileSystem::Access::kCreate, old_permissions_.value_or(0666));
  }
  require_done(result, "create", temporary_);
  file_ = Descriptor(files_, result);
  has_temporary_ = true;
}

AtomicFile::~AtomicFile() {
  if (!has_temporary_) return;
  file_.close();
  files_.unlink(temporary_);
}

void AtomicFile::append(ByteView bytes) {
  require_done(files_.write(file_.number(), bytes), "write", path_);
  bytes_ += bytes.size();
}

void AtomicFile::keep_permissions() {
  if (!old_permissions_) return;
  const int result = files_.set_permissions(file_.number(), *old_permissions_);
  // A file system without permissions refuses; the trace is no worse for it.
  if (result == -EPERM || result == -EOPNOTSUPP || result == -ENOSYS) return;
  require_done(result, "keep the permissions of", path_);
}

void AtomicFile::commit() {
  keep_permissions();
  require_done(files_.sync(file_.number()), "sync", path_);
  require_done(file_.close(), "close", path_);
  // Before the rename, so that behind it the sync alone can fail.
  const Folder folder(files_, path_);
  require_replaceable(files_, path_);
  require_done(files_.rename(temporary_, path_), "rename into place", path_);
  has_temporary_ = false;
  folder.sync();
}

}  // namespace steptape::storage
