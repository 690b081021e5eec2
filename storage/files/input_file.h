#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "storage/files/descriptor.h"
#include "storage/files/wire.h"

namespace steptape::storage {

/// A file that is written from its start to its end.
class Output {
 public:
  virtual ~Output() = default;

  /// Throws Error (io).
  virtual void append(ByteView bytes) = 0;
  /// How many were appended.
  virtual std::uint64_t bytes() const noexcept = 0;
};

/// A regular file open for reading, with the size it had when it was opened. Threads may read at
/// the same time.
class InputFile {
 public:
  /// Throws Error (io) when there is no regular file or it cannot be opened.
  /// `files` must outlive the object.
  explicit InputFile(const std::filesystem::path& path, FileSystem& files = operating_system());

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// `length` bytes from `offset`; both must lie within the file. Throws Error (io).
  std::string read(std::uint64_t offset, std::uint64_t length) const;

 private:
  FileSystem& files_;
  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace steptape::storage
