#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/files/file_system.h"

/// What a new file owes to the one in whose place it comes.
namespace steptape::storage {

/// Which files a new one may take the place of.
enum class Replaces {
  kTraces,
  kOtherFiles,  ///< regular files that are no traces
};

/// The permissions of the file at `path`; none when nothing is there. Throws Error: (io);
/// (failed_precondition) when the path holds something that may not be replaced.
std::optional<std::uint32_t> require_replaceable(FileSystem& files,
                                                 const std::filesystem::path& path,
                                                 Replaces replaces = Replaces::kTraces);

/// Gives the open file those permissions, where there are any to keep. Throws Error (io) with the
/// path.
void keep_permissions(FileSystem& files, int descriptor, std::optional<std::uint32_t> permissions,
                      const std::filesystem::path& path);

}  // namespace steptape::storage
