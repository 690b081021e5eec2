#pragma once

#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::storage {

inline constexpr const char* kSamplePath = "/traces/run.tape";

/// A trace and the bytes of its file.
struct Sample {
  std::string name;
  trace::Trace trace;
  std::string bytes;
};

Sample sample(std::string name, trace::Trace trace);
/// Small ones that hold every kind of block and thing together.
std::vector<Sample> samples();

/// Whether all that `found` holds is in `whole`, in the same order, under the same names.
bool is_part(const trace::Trace& found, const trace::Trace& whole);

}  // namespace steptape::storage
