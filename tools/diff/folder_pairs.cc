#include "tools/diff/folder_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "steptape/error.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "tools/cli/rank_files.h"

namespace steptape::tools {
namespace {

std::set<std::string> traces_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tape") names.insert(entry.path().filename().string());
  }
  return names;
}

/// The one of `names` that is of this rank, or null.
const std::string* find_rank(const std::set<std::string>& names, const std::string& rank) {
  const auto has_rank = [&rank](const std::string& name) { return rank_of(name) == rank; };
  if (rank.empty() || std::ranges::count_if(names, has_rank) != 1) return nullptr;
  return &*std::ranges::find_if(names, has_rank);
}

}  // namespace

std::string NamePair::words() const { return a == b ? a : fmt::format("{} → {}", a, b); }

int FolderPairs::visit(const std::function<int(const NamePair& names)>& visit) const {
  int worst = only_in_a.empty() && only_in_b.empty() ? kGood : kDiffers;
  for (const NamePair& names : both) {
    try {
      worst = std::max(worst, visit(names));
    } catch (const Error& error) {
      complain(error);
      worst = kTrouble;
    }
  }
  return worst;
}

Json FolderPairs::json(int version, const Json& traces) const {
  return {{"version", version},    {"a", a}, {"b", b}, {"traces", traces}, {"only_in_a", only_in_a},
          {"only_in_b", only_in_b}};
}

std::string FolderPairs::lonely_text() const {
  std::string text;
  const auto add = [&text](const std::vector<std::string>& names, const std::string& folder) {
    for (const std::string& name : names) {
      text += fmt::format("{}: {} only in {}\n", toned(Tone::kHeading, shown(name)),
                          toned(Tone::kBad, "differ:"), folder);
    }
  };
  add(only_in_a, a);
  add(only_in_b, b);
  return text;
}

FolderPairs pair_folders(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::set<std::string> left_a = traces_in(a);
  std::set<std::string> left_b = traces_in(b);
  FolderPairs pairs = {a.string(), b.string(), {}, {}, {}};
  const auto pair = [&](const NamePair& names) {
    pairs.both.push_back(names);
    left_a.erase(names.a);
    left_b.erase(names.b);
  };
  for (const std::string& name : std::set(left_a)) {
    if (left_b.contains(name)) pair({name, name});
  }
  for (const std::string& name : std::set(left_a)) {
    const std::string rank = rank_of(name);
    const std::string* other = find_rank(left_b, rank);
    if (other != nullptr && find_rank(left_a, rank) != nullptr) pair({name, *other});
  }
  if (pairs.both.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("no traces, *.tape, of {} and {} have one name or one rank, "
                            "run.rank3.tape",
                            a.string(), b.string()));
  }
  std::ranges::sort(pairs.both, {}, &NamePair::a);
  pairs.only_in_a.assign(left_a.begin(), left_a.end());
  pairs.only_in_b.assign(left_b.begin(), left_b.end());
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
    const std::set<std::string> names = traces_in(folder);
    const std::string* other = names.contains(name) ? &name : find_rank(names, rank_of(name));
    if (other != nullptr) paths.push_back(std::filesystem::path(folder) / *other);
  }
  return paths;
}

}  // namespace steptape::tools
