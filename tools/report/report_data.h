#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "diff/diff.h"
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
nlohmann::ordered_json report_data(const ReportedTrace& a, const ReportedDiff* other);

}  // namespace steptape::tools
