#pragma once

#include "storage/files/input_file.h"
#include "storage/trace/reader.h"

/// The verbs of reader.h over a file that is open, so that several of them see the same bytes
/// though a writer may put another file in its place.
namespace steptape::storage {

/// Errors do not name the file.
trace::Trace read(const InputFile& file);
Report check(const InputFile& file);

}  // namespace steptape::storage
