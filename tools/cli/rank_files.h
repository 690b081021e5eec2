#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/json.h"

/// Files that the processes of one training left: run.rank0.tape, run.rank1.tape, ...
namespace steptape::tools {

/// "3" of run.rank3.tape and run.rank3.tape.ledger; empty where a name tells none.
std::string rank_of(const std::filesystem::path& path);

struct RankFile {
  std::uint64_t rank = 0;
  std::filesystem::path path;
};

/// At least two, in the order of their ranks: those that names tell, or, where none of the names
/// tells one, as they stand. A folder stands for the traces in it. Throws Error (invalid_argument)
/// for fewer, for a rank that two have, and where some names tell a rank and others do not.
std::vector<RankFile> rank_files(const std::vector<std::string>& paths);

/// "0 1 2 | 3": which ranks have something alike, as diff::RankCall numbers them; "-" stands for
/// one of which it is not known.
std::string words_of_groups(std::span<const std::size_t> groups, std::span<const RankFile> ranks);

/// Rank and file of each.
Json ranks_json(std::span<const RankFile> ranks);

}  // namespace steptape::tools
