#pragma once

#include <string>

#include "diff/diff.h"
#include "tools/diff/diff_verdict.h"

namespace steptape::tools {

enum class Detail {
  kCounts,  ///< ops and edits by module
  kSome,    ///< the first edits and findings of each kind
  kAll,
};

/// What `steptape diff` prints below its verdict, for two traces and their diff; empty where
/// nothing that is told differs, no ledgers were compared and no trace says how long ops took.
std::string diff_text(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b,
                      const DiffPolicy& policy, Detail detail);

}  // namespace steptape::tools
