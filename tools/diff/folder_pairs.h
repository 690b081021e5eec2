#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/cli/json.h"

namespace steptape::tools {

/// The names of two traces, one of each folder.
struct NamePair {
  std::string a, b;

  /// "run.rank3.tape"; "monday.rank3.tape → tuesday.rank3.tape"
  std::string words() const;
};

/// The traces, *.tape, of two folders, each list in order. Those of one name are a pair; of the
/// others, those of one rank, run.rank3.tape, where each folder has one of it.
struct FolderPairs {
  std::string a, b;  ///< the folders
  std::vector<NamePair> both;
  std::vector<std::string> only_in_a, only_in_b;

  /// The worst exit code that `visit` gives for `both`, kDiffers at least where a trace stands
  /// alone. An Error that it throws goes to the standard error and is trouble, and the others are
  /// still visited.
  int visit(const std::function<int(const NamePair& names)>& visit) const;

  /// What --json prints, with what it says of `both`.
  Json json(int version, const Json& traces) const;
  /// "rank3.tape: differ: only in runB" for each that stands alone.
  std::string lonely_text() const;
};

/// Throws std::filesystem::filesystem_error for a folder that cannot be read, and Error
/// (invalid_argument) where there is no pair.
FolderPairs pair_folders(const std::filesystem::path& a, const std::filesystem::path& b);

/// Whether all are folders; none may be. Throws Error (invalid_argument) where some are.
bool are_folders(const std::string& a, const std::string& b,
                 const std::vector<std::string>& controls);

/// The partners of the trace of this name in those of the folders that have one.
std::vector<std::filesystem::path> files_named(const std::string& name,
                                               const std::vector<std::string>& folders);

}  // namespace steptape::tools
