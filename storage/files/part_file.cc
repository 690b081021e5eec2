#include "storage/files/part_file.h"

#include <fmt/format.h>

#include <cerrno>

#include "steptape/error.h"
#include "storage/files/descriptor.h"
#include "storage/files/replace.h"

namespace steptape::storage {
namespace {

constexpr int kMaxAttempts = 10'000;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kFailedPrecondition, message);
}

std::filesystem::path beside(const std::filesystem::path& path) {
  std::filesystem::path part = path;
  part += ".part";
  return part;
}

}  // namespace

PartFile::PartFile(const std::filesystem::path& path, FileSystem& files)
    : files_(files), path_(behind_links(files, path)), part_(beside(path_)), file_(files, -1) {
  old_permissions_ = require_replaceable(files_, path_);
  for (int attempt = 0; !open_empty(); ++attempt) {
    if (attempt == kMaxAttempts) refuse(fmt::format("{} comes again and again", part_.string()));
  }
}

PartFile::~PartFile() {
  if (!is_named_) files_.unlink(part_);
}

bool PartFile::open_empty() {
  const std::uint32_t permissions = old_permissions_.value_or(0666);
  file_ = Descriptor(files_, files_.open(part_, FileSystem::Access::kAppend, permissions));
  require_done(file_.number(), "open", part_);
  lock();
  if (!has_its_name()) return false;  // its writer finished meanwhile
  FileSystem::Status status;
  require_done(files_.status_of(file_.number(), status), "look at", part_);
  if (!status.is_regular) refuse(fmt::format("{} exists and is not a file", part_.string()));
  if (status.bytes == 0) return true;
  set_aside(files_, part_);
  return false;
}

void PartFile::lock() {
  const int result = files_.lock(file_.number());
  if (result == -EWOULDBLOCK) {
    refuse(
        fmt::format("{} is being written by another process or session; choose another path, or "
                    "end that one",
                    path_.string()));
  }
  // A file system without locks is better than no trace.
  if (result != -EOPNOTSUPP && result != -ENOSYS) require_done(result, "lock", part_);
}

bool PartFile::has_its_name() const {
  FileSystem::Status open;
  FileSystem::Status named;
  require_done(files_.status_of(file_.number(), open), "look at", part_);
  const int result = files_.status_at(part_, named);
  if (result == -ENOENT) return false;
  require_done(result, "look at", part_);
  return open.device == named.device && open.number == named.number;
}

void PartFile::append(ByteView bytes) {
  require_done(files_.write(file_.number(), bytes), "write", part_);
  bytes_ += bytes.size();
}

void PartFile::cut(std::uint64_t bytes) noexcept {
  if (file_.number() >= 0 && files_.truncate(file_.number(), bytes) >= 0) bytes_ = bytes;
}

void PartFile::sync() {
  require_done(files_.sync(file_.number()), "sync", part_);
  if (is_named_) return;
  Folder(files_, part_).sync();
  is_named_ = true;
}

void PartFile::commit() {
  keep_permissions(files_, file_.number(), old_permissions_, part_);
  sync();
  // Before the rename, so that after it the sync alone can fail.
  const Folder folder(files_, path_);
  require_replaceable(files_, path_);
  if (!has_its_name()) refuse(fmt::format("somebody took {} away", part_.string()));
  require_done(files_.rename(part_, path_), "rename into place", path_);
  // Not before: the lock goes with it.
  file_.close();
  folder.sync();
}

}  // namespace steptape::storage
