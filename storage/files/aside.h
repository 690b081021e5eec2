#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/files/file_system.h"

/// Files that an earlier run left under a name that is needed again: "run.tape" becomes
/// "run.tape.1".
namespace steptape::storage {

/// Gives the file at `path`, which is there, the first free name behind it, counted from `first`,
/// and says its number. Throws Error: (io); (failed_precondition) where 10,000 names are taken.
std::uint64_t set_aside(FileSystem& files, const std::filesystem::path& path,
                        std::uint64_t first = 1);

/// The same of a trace, damaged as it may be; none where nothing is there. Throws Error besides:
/// (failed_precondition) when the file is no trace.
std::optional<std::uint64_t> set_trace_aside(const std::filesystem::path& path,
                                             std::uint64_t first = 1,
                                             FileSystem& files = operating_system());

}  // namespace steptape::storage
