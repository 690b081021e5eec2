#include "storage/files/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <system_error>

#include "steptape/error.h"

namespace steptape::storage {
int FileSystem::close(int descriptor) noexcept {
  const int result = close_once(descriptor);
  return result == -EINTR ? 0 : result;  // a second try could close what another thread opened
}

int FileSystem::write(int descriptor, ByteView bytes) {
  while (!bytes.empty()) {
    const std::int64_t count = until_not_interrupted([&] { return write_once(descriptor, bytes); });
    if (count <= 0) return count == 0 ? -EIO : static_cast<int>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

std::int64_t FileSystem::read(int descriptor, std::uint64_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::int64_t count = until_not_interrupted(
        [&] { return read_once(descriptor, offset + done, out.subspan(done)); });
    if (count < 0) return count;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<std::int64_t>(done);
}

void require_done(std::int64_t result, std::string_view what, const std::filesystem::path& path) {
  if (result >= 0) return;
  throw Error(ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, path.string(),
                          std::generic_category().message(static_cast<int>(-result))));
}

namespace {

template <typename Result>
Result or_error(Result result) {
  return result < 0 ? -errno : result;
}

int flags_for(FileSystem::Access access) {
  switch (access) {
    case FileSystem::Access::kRead:
      return O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    case FileSystem::Access::kCreate:
      return O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    case FileSystem::Access::kFolder:
      return O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    case FileSystem::Access::kAppend:
      return O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  }
  return 0;
}

FileSystem::Status status_from(const struct stat& found) {
  return {S_ISREG(found.st_mode), static_cast<std::uint64_t>(found.st_size), found.st_mode & 07777,
          found.st_dev, found.st_ino};
}

class OperatingSystem final : public FileSystem {
 private:
  int open_once(const std::filesystem::path& path, Access access,
                std::uint32_t permissions) override {
    return or_error(::open(path.c_str(), flags_for(access), permissions));
  }
  int close_once(int descriptor) noexcept override { return or_error(::close(descriptor)); }
  std::int64_t write_once(int descriptor, ByteView bytes) override {
    return or_error<std::int64_t>(::write(descriptor, bytes.data(), bytes.size()));
  }
  std::int64_t read_once(int descriptor, std::uint64_t offset, std::span<std::byte> out) override {
    return or_error<std::int64_t>(
        ::pread(descriptor, out.data(), out.size(), static_cast<off_t>(offset)));
  }
  int sync_once(int descriptor) override { return or_error(::fsync(descriptor)); }
  int set_permissions_once(int descriptor, std::uint32_t permissions) override {
    return or_error(::fchmod(descriptor, permissions));
  }
  int status_of_once(int descriptor, Status& status) override {
    struct stat found {};
    const int result = or_error(::fstat(descriptor, &found));
    status = status_from(found);
    return result;
  }
  int status_at_once(const std::filesystem::path& path, Status& status) override {
    struct stat found {};
    const int result = or_error(::stat(path.c_str(), &found));
    status = status_from(found);
    return result;
  }
  int read_link_once(const std::filesystem::path& path, std::filesystem::path& target) override {
    std::array<char, PATH_MAX> text{};
    const std::int64_t count =
        or_error<std::int64_t>(::readlink(path.c_str(), text.data(), text.size()));
    if (count < 0) return static_cast<int>(count);
    target.assign(text.begin(), text.begin() + count);
    return 0;
  }
  int rename_once(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return or_error(::rename(from.c_str(), to.c_str()));
  }
  int unlink_once(const std::filesystem::path& path) noexcept override {
    return or_error(::unlink(path.c_str()));
  }
  int truncate_once(int descriptor, std::uint64_t bytes) override {
    return or_error(::ftruncate(descriptor, static_cast<off_t>(bytes)));
  }
  int lock_once(int descriptor) override {
    return or_error(::flock(descriptor, LOCK_EX | LOCK_NB));
  }
};

}  // namespace

FileSystem& operating_system() noexcept {
  static OperatingSystem instance;
  return instance;
}

}  // namespace steptape::storage
