#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace steptape::tools {

/// The traces, *.tape, of two folders by name, each list in order.
struct FolderPairs {
  std::vector<std::string> both;
  std::vector<std::string> only_in_a, only_in_b;
};

/// Throws std::filesystem::filesystem_error for a folder that cannot be read.
FolderPairs pair_folders(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace steptape::tools
