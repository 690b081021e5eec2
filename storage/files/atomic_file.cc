#include "storage/files/atomic_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "storage/files/descriptor.h"

namespace steptape::storage {

AtomicFile::AtomicFile(const std::filesystem::path& path, FileSystem& files, Replaces replaces)
    : files_(files), replaces_(replaces), path_(behind_links(files, path)), file_(files, -1) {
  old_permissions_ = require_replaceable(files_, path_, replaces_);
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

void AtomicFile::commit() {
  keep_permissions(files_, file_.number(), old_permissions_, path_);
  require_done(files_.sync(file_.number()), "sync", path_);
  require_done(file_.close(), "close", path_);
  // Before the rename, so that after it the sync alone can fail.
  const Folder folder(files_, path_);
  require_replaceable(files_, path_, replaces_);
  require_done(files_.rename(temporary_, path_), "rename into place", path_);
  has_temporary_ = false;
  folder.sync();
}

}  // namespace steptape::storage
