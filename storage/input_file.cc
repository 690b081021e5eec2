#include "storage/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw Error(ErrorCode::kIo, fmt::format("cannot read {}: {}", path.string(), what));
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(path, std::strerror(errno));
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    bytes_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  fail(path, error == 0 ? "it is no regular file" : std::strerror(error));
}

InputFile::~InputFile() { ::close(descriptor_); }

std::string InputFile::read(std::uint64_t offset, std::uint64_t length) const {
  std::string out(length, '\0');
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done,
                                  static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, std::strerror(errno));
    if (count == 0) fail(path_, "it became shorter while it was read");
    done += static_cast<std::size_t>(count);
  }
  return out;
}

}  // namespace steptape::storage
