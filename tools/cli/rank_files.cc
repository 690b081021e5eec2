#include "tools/cli/rank_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "diff/ledger/ledger_diff.h"
#include "steptape/error.h"
#include "tools/cli/json.h"

namespace steptape::tools {
namespace {

std::vector<std::filesystem::path> with_folders_read(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".tape") files.push_back(entry.path());
    }
  }
  return files;
}

std::optional<std::uint64_t> number_of(const std::string& rank) {
  constexpr std::size_t kDigits = std::numeric_limits<std::uint64_t>::digits10;
  if (rank.empty() || rank.size() > kDigits) return std::nullopt;
  return std::stoull(rank);
}

}  // namespace

std::string rank_of(const std::filesystem::path& path) {
  constexpr std::string_view kRank = ".rank";
  const std::string name = path.filename().string();
  const std::size_t at = name.rfind(kRank);
  if (at == std::string::npos) return {};
  const std::size_t first = at + kRank.size();
  const std::size_t end = name.find_first_not_of("0123456789", first);
  return end != std::string::npos && name[end] == '.' ? name.substr(first, end - first) : "";
}

std::vector<RankFile> rank_files(const std::vector<std::string>& paths) {
  std::vector<RankFile> ranks;
  std::size_t named = 0;
  for (const std::filesystem::path& path : with_folders_read(paths)) {
    const auto rank = number_of(rank_of(path));
    named += rank ? 1 : 0;
    ranks.push_back({rank.value_or(ranks.size()), path});
  }
  if (ranks.size() < 2) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "ranks are compared with each other: give the files of two or more, or their folder");
  }
  std::ranges::stable_sort(ranks, {}, &RankFile::rank);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const bool mixes = named != 0 && named != ranks.size();
    if (!mixes && ranks[i].rank != ranks[i - 1].rank) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} and {} are of one rank, or one of them does not tell it: the ranks "
                            "of a run are named as run.rank3.tape",
                            ranks[i - 1].path.string(), ranks[i].path.string()));
  }
  return ranks;
}

std::string words_of_groups(std::span<const std::size_t> groups, std::span<const RankFile> ranks) {
  std::map<std::size_t, std::string> members;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::string& words = members[groups[i]];
    words += fmt::format("{}{}", words.empty() ? "" : " ", ranks[i].rank);
  }
  std::string out;
  for (const auto& [group, words] : members) {
    out +=
        fmt::format("{}{}", out.empty() ? "" : " | ", group == diff::RankCall::kNone ? "-" : words);
  }
  return out;
}

Json ranks_json(std::span<const RankFile> ranks) {
  return each(ranks, [](const RankFile& file) {
    return Json{{"rank", file.rank}, {"file", file.path.string()}};
  });
}

}  // namespace steptape::tools
