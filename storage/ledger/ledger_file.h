#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "storage/files/file_system.h"

/// What may be done with a ledger as a file, before anything is read or written.
namespace steptape::storage {

class InputFile;

/// Keeps other writers from an open ledger as long as `descriptor` is open. Throws Error
/// (failed_precondition) where another has it; (io).
void lock_ledger(FileSystem& files, int descriptor, const std::filesystem::path& path);

/// Whether nothing was written into it yet, not even the header as a whole.
bool holds_no_header(const InputFile& file);
/// Throws Error (failed_precondition) when the file is not a ledger.
void require_ledger(const InputFile& file, const std::filesystem::path& path);

/// Gives the ledger that an earlier run left at `path` the first free name after it
/// ("run.tape.ledger.1", "run.tape.ledger.2", ...), damaged as it may be, and says its number; none
/// where there is no line to keep. Throws Error: (failed_precondition) when the file is not a
/// ledger or another writer has it open; (io).
std::optional<std::uint64_t> set_ledger_aside(const std::filesystem::path& path,
                                              FileSystem& files = operating_system());

}  // namespace steptape::storage
