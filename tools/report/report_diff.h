#pragma once

#include <nlohmann/json.hpp>

#include "diff/diff.h"

namespace steptape::tools {

/// How two traces differ, for the page: findings by section, how long the ops of modules took, and
/// of each pair of recordings the ops that left other bits and the rows of both op streams side by
/// side. A row is a run of ops that are the same, `same` = [first
/// in a, first in b, how many], or one edit with the words of its sides.
nlohmann::ordered_json report_diff(const diff::Diff& diff, const trace::Trace& a,
                                   const trace::Trace& b);

}  // namespace steptape::tools
