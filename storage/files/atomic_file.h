#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/files/descriptor.h"
#include "storage/files/input_file.h"
#include "storage/files/replace.h"

namespace steptape::storage {

/// A file that appears under its name whole or not at all. It is written under a temporary name in
/// the same folder, "run.tape.tmp.<pid>.<n>", which goes when the object goes without `commit`. A
/// process that is killed leaves its temporary file; nothing ever reads or replaces it. Throws
/// Error: (io) with the path and what the operating system said; (failed_precondition) when the
/// path holds something that may not be replaced.
class AtomicFile final : public Output {
 public:
  /// `files` must outlive the object.
  explicit AtomicFile(const std::filesystem::path& path, FileSystem& files = operating_system(),
                      Replaces replaces = Replaces::kTraces);
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(ByteView bytes) override;
  std::uint64_t bytes() const noexcept override { return bytes_; }
  /// Syncs file and folder around the rename. When the folder's sync fails the new file is in its
  /// place, and a loss of power may bring back the old one.
  void commit();

 private:
  void open_temporary();

  FileSystem& files_;
  Replaces replaces_;
  std::filesystem::path path_;  ///< what a symbolic link points to, not the link
  std::optional<std::uint32_t> old_permissions_;
  std::filesystem::path temporary_;
  bool has_temporary_ = false;
  Descriptor file_;
  std::uint64_t bytes_ = 0;
};

}  // namespace steptape::storage
