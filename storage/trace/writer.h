#pragma once

#include <filesystem>

#include "storage/files/file_system.h"
#include "trace/model.h"

namespace steptape::storage {

enum class Compression { kNone, kZstd };

struct WriteOptions {
  /// Of tensor bytes, and of recordings, each against the one before it of the same step.
  Compression compression = Compression::kZstd;
};

/// Writes `trace` to `path`: to a temporary name beside it, synced, then renamed over it, so that
/// the path holds the old file or the new one whole, whenever the process or the machine dies. An
/// existing file that is not a trace is never replaced. Throws Error (io) with the path and what
/// the operating system said; (failed_precondition) for a foreign file; (invalid_argument) for a
/// trace that `trace::validate` refuses, which no reader would take. Whatever it throws,
/// std::bad_alloc included, the old file stays and the temporary one goes, unless the folder's sync
/// alone failed.
void write(const trace::Trace& trace, const std::filesystem::path& path,
           const WriteOptions& options = {}, FileSystem& files = operating_system());

}  // namespace steptape::storage
