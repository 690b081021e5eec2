#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/files/file_system.h"

/// What a new file owes to one that an earlier run left under its name: it comes in its place, or
/// that one is set aside, "run.tape" as "run.tape.1".
namespace steptape::storage {

/// Gives the file at `path`, which is there, the first free name after it, counted from `first`,
/// and says its number. Throws Error: (io); (failed_precondition) where 10,000 names are taken.
std::uint64_t set_aside(FileSystem& files, const std::filesystem::path& path,
                        std::uint64_t first = 1);

/// The same of a trace, damaged as it may be; none where nothing is there. Throws Error besides:
/// (failed_precondition) when the file is not a trace.
std::optional<std::uint64_t> set_trace_aside(const std::filesystem::path& path,
                                             std::uint64_t first = 1,
                                             FileSystem& files = operating_system());

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
