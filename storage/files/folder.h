#pragma once

#include <filesystem>

#include "storage/files/descriptor.h"

namespace steptape::storage {

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
