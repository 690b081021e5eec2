#pragma once

#include <cstdint>

/// What both programs of the demo must agree on to see the same batches.
namespace digits {

inline constexpr std::uint64_t kSeed = 7;
inline constexpr std::int64_t kBatchSize = 32;
/// Steps trained eagerly, and again through Steptape.
inline constexpr std::int64_t kSteps = 1100;
/// Steps trained after the trace was saved, once in each program.
inline constexpr std::int64_t kContinuedSteps = 200;

}  // namespace digits
