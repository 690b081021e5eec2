#pragma once

#include <filesystem>
#include <string_view>

namespace steptape::tools {

/// Writes a result to `path`, beside it first and then renamed, so that it is there whole or not at
/// all; to the standard output where `path` is empty or "-". Throws Error: (io) with what the
/// operating system said; (failed_precondition) where `path` holds a trace, which no result
/// replaces.
void put_result(std::string_view result, const std::filesystem::path& path);

}  // namespace steptape::tools
