#pragma once

#include <string>
#include <vector>

namespace steptape::tools {

struct RankOptions {
  std::vector<std::string> paths;  ///< of traces, of ledgers, or of folders with traces
  std::string step;                ///< of this name alone
  bool with_buffers = false;       ///< of modules
  bool all = false;                ///< every op of a way
  bool json = false;
};

/// `steptape diff --ranks`: in which call, and by which op, the processes of one training part in
/// what they are to have alike. Gives the exit status.
int diff_ranks(const RankOptions& options);

}  // namespace steptape::tools
