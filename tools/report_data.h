#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "trace/model.h"

namespace steptape::tools {

/// A trace and the name that a report calls it by.
struct ReportedTrace {
  std::string name;  ///< of its file, without folders: reports are passed on
  std::uint64_t bytes = 0;
  const trace::Trace* trace = nullptr;
};

/// What a page shows of `a`, and of how `b` differs from it, where there is one (null: none).
nlohmann::ordered_json report_data(const ReportedTrace& a, const ReportedTrace* b);

}  // namespace steptape::tools
