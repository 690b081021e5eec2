#pragma once

#include <cstdint>

/// What both programs of the example must agree on to get the same bits.
namespace char_gru {

inline constexpr std::uint64_t kSeed = 13;
/// Places of the text that are read side by side.
inline constexpr std::int64_t kStreams = 16;
/// Characters a step reads at each of them.
inline constexpr std::int64_t kLength = 16;
/// Kernels of this size gain nothing from a second thread; and another number gives other bits.
inline constexpr int kThreads = 1;
inline constexpr std::int64_t kSteps = 1000;
/// The trace is saved before this step; the second program starts with it.
inline constexpr std::int64_t kSavedAt = 500;

}  // namespace char_gru
