#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "storage/files/wire.h"

namespace steptape::storage {

/// What storage asks of the operating system; tests put one in its place whose calls fail. The
/// public functions try again what a signal interrupted and go on with what was done in part; the
/// private ones are one call each. A negative result is an error of <cerrno> with its sign turned,
/// as the kernel gives it. Threads may call at the same time.
class FileSystem {
  template <typename Call>
  static auto until_not_interrupted(Call&& call) {
    for (;;) {
      const auto result = call();
      if (result != -EINTR) return result;
    }
  }

 public:
  enum class Access { kRead, kCreate, kFolder, kAppend };
  struct Status {
    bool is_regular = false;
    std::uint64_t bytes = 0;
    std::uint32_t permissions = 0;  ///< the lowest 12 bits of the mode
    std::uint64_t device = 0;       ///< with the number: which file it is, whatever its name
    std::uint64_t number = 0;
  };

  virtual ~FileSystem() = default;

  /// A descriptor. kCreate makes a file to write to, with at most `permissions`, and fails with
  /// EEXIST where the name is taken. kRead does not wait for the writer of a pipe. kAppend opens
  /// the file or makes it; what is written comes after all that it holds.
  int open(const std::filesystem::path& path, Access access, std::uint32_t permissions = 0) {
    return until_not_interrupted([&] { return open_once(path, access, permissions); });
  }
  /// The descriptor is gone, whatever the result.
  int close(int descriptor) noexcept;
  /// All of `bytes`, after what was written before.
  int write(int descriptor, ByteView bytes);
  /// Fills `out`; the result is smaller than that where the file ends.
  std::int64_t read(int descriptor, std::uint64_t offset, std::span<std::byte> out);
  /// Of a file or folder.
  int sync(int descriptor) {
    return until_not_interrupted([&] { return sync_once(descriptor); });
  }
  /// Leaves the first `bytes` of a file.
  int truncate(int descriptor, std::uint64_t bytes) {
    return until_not_interrupted([&] { return truncate_once(descriptor, bytes); });
  }
  /// Nobody else locks the file until the descriptor is closed or the process ends; EWOULDBLOCK
  /// where somebody has. It does not wait.
  int lock(int descriptor) {
    return until_not_interrupted([&] { return lock_once(descriptor); });
  }
  int set_permissions(int descriptor, std::uint32_t permissions) {
    return until_not_interrupted([&] { return set_permissions_once(descriptor, permissions); });
  }
  int status_of(int descriptor, Status& status) {
    return until_not_interrupted([&] { return status_of_once(descriptor, status); });
  }
  /// Follows links.
  int status_at(const std::filesystem::path& path, Status& status) {
    return until_not_interrupted([&] { return status_at_once(path, status); });
  }
  /// What the link at `path` holds; EINVAL where that is not a link.
  int read_link(const std::filesystem::path& path, std::filesystem::path& target) {
    return until_not_interrupted([&] { return read_link_once(path, target); });
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    return until_not_interrupted([&] { return rename_once(from, to); });
  }
  int unlink(const std::filesystem::path& path) noexcept {
    return until_not_interrupted([&] { return unlink_once(path); });
  }

 private:
  virtual int open_once(const std::filesystem::path& path, Access access,
                        std::uint32_t permissions) = 0;
  virtual int close_once(int descriptor) noexcept = 0;
  virtual std::int64_t write_once(int descriptor, ByteView bytes) = 0;
  virtual std::int64_t read_once(int descriptor, std::uint64_t offset,
                                 std::span<std::byte> out) = 0;
  virtual int sync_once(int descriptor) = 0;
  virtual int set_permissions_once(int descriptor, std::uint32_t permissions) = 0;
  virtual int status_of_once(int descriptor, Status& status) = 0;
  virtual int status_at_once(const std::filesystem::path& path, Status& status) = 0;
  virtual int read_link_once(const std::filesystem::path& path, std::filesystem::path& target) = 0;
  virtual int rename_once(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual int unlink_once(const std::filesystem::path& path) noexcept = 0;
  virtual int truncate_once(int descriptor, std::uint64_t bytes) = 0;
  virtual int lock_once(int descriptor) = 0;
};

/// The machine's own.
FileSystem& operating_system() noexcept;

/// Throws Error (io) when `result` is negative: "cannot WHAT PATH: " and what the operating system
/// says to the error.
void require_done(std::int64_t result, std::string_view what, const std::filesystem::path& path);

}  // namespace steptape::storage
