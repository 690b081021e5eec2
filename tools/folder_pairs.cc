#include "tools/folder_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "steptape/error.h"
#include "tools/exit_code.h"
#include "tools/output.h"

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

int FolderPairs::visit(const std::function<int(const std::string& name)>& visit) const {
  int worst = kGood;
  for (const std::string& name : both) {
    try {
      worst = std::max(worst, visit(name));
    } catch (const Error& error) {
      complain(error);
      worst = kTrouble;
    }
  }
  return worst;
}

FolderPairs pair_folders(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::set<std::string> names_a = traces_in(a);
  const std::set<std::string> names_b = traces_in(b);
  FolderPairs pairs;
  std::ranges::set_intersection(names_a, names_b, std::back_inserter(pairs.both));
  std::ranges::set_difference(names_a, names_b, std::back_inserter(pairs.only_in_a));
  std::ranges::set_difference(names_b, names_a, std::back_inserter(pairs.only_in_b));
  if (pairs.both.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no trace, *.tape, is in both {} and {}", a.string(), b.string()));
  }
  return pairs;
}

bool are_folders(const std::string& a, const std::string& b,
                 const std::vector<std::string>& controls) {
  const bool are_folders = std::filesystem::is_directory(a);
  std::vector<std::string> others = controls;
  others.push_back(b);
  for (const std::string& other : others) {
    if (are_folders == std::filesystem::is_directory(other)) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} and {} are a folder and a file: give all of one kind", a, other));
  }
  return are_folders;
}

std::vector<std::filesystem::path> files_named(const std::string& name,
                                               const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(path)) paths.push_back(path);
  }
  return paths;
}

std::string lonely_text(const std::vector<std::string>& names, const std::string& folder) {
  std::string text;
  for (const std::string& name : names) {
    text += fmt::format("{}: {} only in {}\n", toned(Tone::kHeading, shown(name)),
                        toned(Tone::kBad, "differ:"), folder);
  }
  return text;
}

}  // namespace steptape::tools
