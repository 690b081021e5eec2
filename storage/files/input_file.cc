#include "storage/files/input_file.h"

#include <fmt/format.h>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw Error(ErrorCode::kIo, fmt::format("cannot read {}: {}", path.string(), what));
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path, FileSystem& files)
    : files_(files), path_(path), file_(files, path, FileSystem::Access::kRead, "read") {
  FileSystem::Status status;
  require_done(files_.status_of(file_.number(), status), "read", path_);
  if (!status.is_regular) fail(path_, "it is not a regular file");
  bytes_ = status.bytes;
}

std::string InputFile::read(std::uint64_t offset, std::uint64_t length) const {
  std::string out(length, '\0');
  const std::int64_t count =
      files_.read(file_.number(), offset, std::as_writable_bytes(std::span(out)));
  require_done(count, "read", path_);
  if (static_cast<std::uint64_t>(count) < length)
    fail(path_, "it became shorter while it was read");
  return out;
}

}  // namespace steptape::storage
