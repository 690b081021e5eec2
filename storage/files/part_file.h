#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/files/descriptor.h"
#include "storage/files/input_file.h"

namespace steptape::storage {

/// A file that grows beside its place, "run.tape.part", and comes into its place when it is done.
/// While it is open it is locked: nobody else opens it so. What an earlier process left under the
/// name is set aside as "run.tape.part.1", or the first number that is free, and never touched
/// again. Before the first sync the file goes with the object, and stays from then on. Throws
/// Error: (io) with the path and what the operating system said; (failed_precondition) as said
/// below.
class PartFile final : public Output {
 public:
  /// Failed preconditions: the path holds something that is not a trace, or another process writes
  /// it. `files` must outlive the object.
  PartFile(const std::filesystem::path& path, FileSystem& files);
  ~PartFile() override;
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  /// Where it grows.
  const std::filesystem::path& part() const noexcept { return part_; }
  void append(ByteView bytes) override;
  std::uint64_t bytes() const noexcept override { return bytes_; }
  /// Leaves the first `bytes`, where that can be done and the file is open.
  void cut(std::uint64_t bytes) noexcept;
  /// Name and bytes are on the disk after it.
  void sync();
  /// Puts the file into its place and closes it. A failed precondition: the place holds something
  /// that is not a trace by now, or somebody took the file away.
  void commit();

 private:
  bool open_empty();
  void lock();
  bool has_its_name() const;

  FileSystem& files_;
  std::filesystem::path path_;  ///< what a symbolic link points to, not the link
  std::filesystem::path part_;
  std::optional<std::uint32_t> old_permissions_;
  Descriptor file_;
  std::uint64_t bytes_ = 0;
  bool is_named_ = false;  ///< on the disk
};

}  // namespace steptape::storage
