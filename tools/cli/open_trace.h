#pragma once

#include <filesystem>

#include "trace/model.h"

namespace steptape::tools {

enum class Parts { kAll, kWhatIsLeft };

/// Reads the trace. With Parts::kWhatIsLeft a damaged file gives what is whole of it, and what is
/// missing goes to the standard error. Throws Error as storage::read does.
trace::Trace open_trace(const std::filesystem::path& path, Parts parts);

}  // namespace steptape::tools
