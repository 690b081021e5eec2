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

/// Whether `found` is what comes first in `whole`: the same steps in the same order, of the last
/// one the first recordings, and saved state only behind the last step.
bool is_prefix(const trace::Trace& found, const trace::Trace& whole);

}  // namespace steptape::storage
