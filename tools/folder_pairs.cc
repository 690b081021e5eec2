#include "tools/folder_pairs.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace steptape::tools {
namespace {

std::set<std::string> traces_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tape") names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

FolderPairs pair_folders(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::set<std::string> names_a = traces_in(a);
  const std::set<std::string> names_b = traces_in(b);
  FolderPairs pairs;
  std::ranges::set_intersection(names_a, names_b, std::back_inserter(pairs.both));
  std::ranges::set_difference(names_a, names_b, std::back_inserter(pairs.only_in_a));
  std::ranges::set_difference(names_b, names_a, std::back_inserter(pairs.only_in_b));
  return pairs;
}

}  // namespace steptape::tools
