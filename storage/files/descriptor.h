#pragma once

#include <filesystem>
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

/// The process that made the object. A forked child has its descriptors too, and must not write to
/// them: what both write would mix.
class OwningProcess {
 public:
  OwningProcess() noexcept;

  bool is_this_one() const noexcept;
  /// Throws Error (failed_precondition) in a forked child. `path` is that of the file.
  void require_this_one(const std::filesystem::path& path) const;

 private:
  int number_;
};

/// The folder that holds a file, open so that the file's name can be synced. Throws Error (io).
class Folder {
 public:
  /// `files` must outlive the object.
  Folder(FileSystem& files, const std::filesystem::path& file);

  /// Nothing where the file system cannot sync folders.
  void sync() const;

 private:
  FileSystem& files_;
  std::filesystem::path file_;
  Descriptor folder_;
};

/// What a symbolic link points to in the end, which need not be there yet; `path` where that is no
/// link. Throws Error (io).
std::filesystem::path behind_links(FileSystem& files, std::filesystem::path path);

}  // namespace steptape::storage
