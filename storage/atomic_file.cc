#include "storage/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "steptape/error.h"
#include "storage/format.h"

namespace steptape::storage {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int error) {
  throw Error(ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(error)));
}

bool begins_like_a_trace(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail("look into", path, errno);
  std::array<std::uint8_t, kMagic.size()> start{};
  const ssize_t count = ::pread(descriptor, start.data(), start.size(), 0);
  const int error = errno;
  ::close(descriptor);
  if (count < 0) fail("look into", path, error);
  return count == static_cast<ssize_t>(start.size()) && start == kMagic;
}

void require_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail("look at", path, errno);
  }
  if (S_ISREG(status.st_mode) && begins_like_a_trace(path)) return;
  throw Error(ErrorCode::kFailedPrecondition,
              fmt::format("{} exists and is no trace; it was left as it is. Choose another path or "
                          "remove it",
                          path.string()));
}

/// A link may point to nothing yet, which `canonical` would not follow.
std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int kMaxLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(path, error); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  }
  return path;
}

/// Not every file system can sync a folder; those that cannot say EINVAL.
void sync_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("open the folder", folder, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL) fail("sync the folder", folder, error);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(behind_links(path)) {
  require_replaceable(path_);
  open_temporary();
}

void AtomicFile::open_temporary() {
  static std::atomic<unsigned> counter{0};
  // A name may be taken by what a killed process of the same number left.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = path_;
    temporary_ += fmt::format(".tmp.{}.{}", ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) return;
    if (errno != EEXIST) break;
  }
  fail("create", temporary_, errno);
}

AtomicFile::~AtomicFile() { close_and_unlink(); }

void AtomicFile::close_and_unlink() noexcept {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  ::unlink(temporary_.c_str());
}

void AtomicFile::append(ByteView bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("write", path_, errno);
    done += static_cast<std::size_t>(count);
  }
  bytes_ += bytes.size();
}

void AtomicFile::keep_permissions() const {
  struct stat old {};
  if (::stat(path_.c_str(), &old) != 0) return;
  // A file system without permissions refuses; the trace is no worse for it.
  static_cast<void>(::fchmod(descriptor_, old.st_mode & 07777));
}

void AtomicFile::commit() {
  keep_permissions();
  if (::fsync(descriptor_) != 0) fail("sync", path_, errno);
  require_replaceable(path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename into place", path_, errno);
  const int error = ::close(std::exchange(descriptor_, -1)) == 0 ? 0 : errno;
  if (error != 0) fail("close", path_, error);
  sync_folder(path_);
}

}  // namespace steptape::storage
