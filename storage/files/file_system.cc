#include "storage/files/file_system.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

template <typename Call>
auto until_not_interrupted(Call&& call) {
  for (;;) {
    const auto result = call();
    if (result != -EINTR) return result;
  }
}

}  // namespace

int FileSystem::open(const std::filesystem::path& path, Access access, std::uint32_t permissions) {
  return until_not_interrupted([&] { return open_once(path, access, permissions); });
}

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

int FileSystem::sync(int descriptor) {
  return until_not_interrupted([&] { return sync_once(descriptor); });
}

int FileSystem::truncate(int descriptor, std::uint64_t bytes) {
  return until_not_interrupted([&] { return truncate_once(descriptor, bytes); });
}

int FileSystem::lock(int descriptor) {
  return until_not_interrupted([&] { return lock_once(descriptor); });
}

int FileSystem::set_permissions(int descriptor, std::uint32_t permissions) {
  return until_not_interrupted([&] { return set_permissions_once(descriptor, permissions); });
}

int FileSystem::status_of(int descriptor, Status& status) {
  return until_not_interrupted([&] { return status_of_once(descriptor, status); });
}

int FileSystem::status_at(const std::filesystem::path& path, Status& status) {
  return until_not_interrupted([&] { return status_at_once(path, status); });
}

int FileSystem::read_link(const std::filesystem::path& path, std::filesystem::path& target) {
  return until_not_interrupted([&] { return read_link_once(path, target); });
}

int FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return until_not_interrupted([&] { return rename_once(from, to); });
}

int FileSystem::unlink(const std::filesystem::path& path) noexcept {
  return until_not_interrupted([&] { return unlink_once(path); });
}

void require_done(std::int64_t result, std::string_view what, const std::filesystem::path& path) {
  if (result >= 0) return;
  throw Error(ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, path.string(),
                          std::generic_category().message(static_cast<int>(-result))));
}

}  // namespace steptape::storage
