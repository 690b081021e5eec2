#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "diff/diff.h"
#include "diff/numerics/numeric_differences.h"
#include "diff/op_stream.h"
#include "tools/cli/json.h"
#include "trace/model.h"

namespace steptape::tools {

/// A trace and the name that a report calls it by.
struct ReportedTrace {
  std::string name;  ///< of its file, without folders: reports are passed on
  std::uint64_t bytes = 0;
  const trace::Trace* trace = nullptr;
};

/// Another trace and how it differs.
struct ReportedDiff {
  ReportedTrace b;
  diff::Diff diff;
};

/// A page's number of something: -1 for none.
inline std::int64_t signed_of(trace::Index index) {
  return index == trace::kNone ? std::int64_t{-1} : std::int64_t{index};
}

/// What a page shows of `a`, and of how another differs from it, where there is one (null: none).
Json report_data(const ReportedTrace& a, const ReportedDiff* other);

/// How two traces differ, for the page: findings by section, how long the ops of modules took, and
/// of each pair of recordings the ops that left other bits and the rows of both op streams side by
/// side. A row is a run of ops that are the same, `same` = [first
/// in a, first in b, how many], or one edit with the words of its sides.
Json report_diff(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b);

/// Host numbers of a recording for the page: formulas, what they follow from and where they enter.
/// An index that is none stands as -1.
Json report_numbers(const trace::Recording& recording);

/// In which ops two recordings left other bits, for the page: how many, and the first of them with
/// the reason of each. Origins come first, then what is not known, receivers and noise.
Json report_numerics(const diff::NumericDifferences& found, const diff::OpStream& a,
                     const diff::OpStream& b);

/// The ops of a recording with their operators, tensors and buffers, for the page: by column, so
/// that 100,000 ops take some megabytes. An id or index that is none stands as -1. An argument is
/// the id of a tensor, a list of arguments, or a text; null stands for none.
Json report_ops(const trace::Recording& recording);

/// The page of tools/report/ before and after the data that it shows: made by
/// cmake/ReportPage.cmake while building. It takes nothing from a network, and its policy lets no
/// other script run.
std::string_view page_before_data();
std::string_view page_behind_data();

}  // namespace steptape::tools
