#pragma once

#include <cstring>

#include "tests/storage/trace_file.h"

namespace steptape::storage {

/// A trace that no other number has; a write takes long enough to be interrupted.
inline trace::Trace generation(std::uint64_t number) {
  trace::Trace trace = test::train_trace();
  trace.run = {{"generation", std::to_string(number)}};
  std::vector<std::byte> content = *noise(1000 + number * 79'190'013 % 700'000);
  std::memcpy(content.data(), &number, sizeof(number));
  trace.state.push_back({"content", 0, std::make_shared<std::vector<std::byte>>(content)});
  return trace;
}

inline std::uint64_t generation_of(const trace::Trace& trace) {
  return std::stoull(trace.run.at(0).value);
}

}  // namespace steptape::storage
