#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "storage/files/file_system.h"
#include "storage/files/input_file.h"
#include "trace/model.h"

namespace steptape::storage {

struct FormatVersion {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};

/// What a look at every block of a file found.
struct Report {
  FormatVersion format;
  std::uint64_t file_bytes = 0;
  std::uint64_t blocks = 0;          ///< whole and with the right checksum
  std::uint64_t blocks_missing = 0;  ///< damaged, or announced by the index and not there
  std::uint64_t bytes_lost = 0;      ///< after the last whole block, where no index leads further
  bool has_index = false;
  /// What is wrong, in the order of the file; empty for a whole file.
  std::vector<std::string> problems;
  bool whole() const noexcept { return problems.empty(); }
};

/// Reads and validates a trace. Everything handed on has passed `trace::validate`.
/// Throws Error: (io) the file cannot be read; (data_loss) it is not a trace, empty, truncated or
/// damaged, with the offset and what was expected; (unsupported) it is of a newer major format or
/// holds a block that this build must but cannot understand.
trace::Trace read(const std::filesystem::path& path, FileSystem& files = operating_system());

/// Looks at every block without giving up at the first problem. Throws Error (io) alone.
Report check(const std::filesystem::path& path, FileSystem& files = operating_system());

/// Reads what a damaged or cut file still holds, up to the first block whose header is wrong;
/// `report` says what is missing. Recordings and saved states come in their order, each as it was
/// written, or are left out. None when not even the header is there.
std::optional<trace::Trace> recover(const std::filesystem::path& path, Report& report,
                                    FileSystem& files = operating_system());

/// The same over a file that is open, so that several of them see the same bytes though a writer
/// may put another file in its place. Errors do not name the file.
trace::Trace read(const InputFile& file);
Report check(const InputFile& file);

}  // namespace steptape::storage
