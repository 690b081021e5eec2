#pragma once

#include <cstdint>

/// What both programs of the demo must agree on to get the same bits.
namespace digits {

inline constexpr std::uint64_t kSeed = 7;
inline constexpr std::int64_t kBatchSize = 32;
/// Kernels of this size gain nothing from a second thread; and another number gives other bits.
inline constexpr int kThreads = 1;
/// Steps trained eagerly, and again through Steptape.
inline constexpr std::int64_t kSteps = 1100;
/// Steps trained after the trace was saved, once in each program.
inline constexpr std::int64_t kContinuedSteps = 200;

}  // namespace digits
