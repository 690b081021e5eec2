#pragma once

#include <utility>

#include "storage/files/file_system.h"

namespace steptape::storage {

/// An open file or folder; closes it when it goes.
class Descriptor {
 public:
  /// Throws Error (io), "cannot WHAT PATH: ...".
  Descriptor(FileSystem& files, const std::filesystem::path& path, FileSystem::Access access,
             std::string_view what)
      : Descriptor(files, files.open(path, access)) {
    require_done(number_, what, path);
  }
  /// Takes `number`, which may be negative: then nothing is open.
  Descriptor(FileSystem& files, int number) : files_(&files), number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept
      : files_(other.files_), number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(files_, other.files_);
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const noexcept { return number_; }
  int close() noexcept { return number_ < 0 ? 0 : files_->close(std::exchange(number_, -1)); }

 private:
  FileSystem* files_;
  int number_;
};

}  // namespace steptape::storage
