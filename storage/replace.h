#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/file_system.h"

/// What a new trace owes to the file in whose place it comes.
namespace steptape::storage {

/// The permissions of the trace at `path`; none when nothing is there. Throws Error: (io);
/// (failed_precondition) when the path holds something that is no trace.
std::optional<std::uint32_t> require_replaceable(FileSystem& files,
                                                 const std::filesystem::path& path);

/// Gives the open file those permissions, where there are any to keep. Throws Error (io) with the
/// path.
void keep_permissions(FileSystem& files, int descriptor, std::optional<std::uint32_t> permissions,
                      const std::filesystem::path& path);

}  // namespace steptape::storage
