#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "storage/files/descriptor.h"
#include "storage/files/file_system.h"

namespace steptape::storage {

/// Traces of one training as it goes on, "snapshot-000000001200.tape", by a number that grows.
/// Other files in the folder are left alone.
class SnapshotFolder {
 public:
  explicit SnapshotFolder(std::filesystem::path folder, FileSystem& files = operating_system())
      : files_(files), folder_(std::move(folder)) {}

  const std::filesystem::path& path() const noexcept { return folder_; }
  std::filesystem::path path_of(std::uint64_t number) const;
  /// Of those there are, ascending; none where there is no folder. Throws Error (io).
  std::vector<std::uint64_t> numbers() const;
  /// Of those up to `newest`, removes all but the last `count`. What cannot be removed stays.
  void keep(std::size_t count, std::uint64_t newest) const;
  /// Nobody else takes the folder until this object goes, or the process; what writers that died
  /// have left half written is removed. Throws Error: (failed_precondition) when somebody has it;
  /// (io).
  void take();

 private:
  FileSystem& files_;
  std::filesystem::path folder_;
  std::optional<Descriptor> lock_;
};

}  // namespace steptape::storage
