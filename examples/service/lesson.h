#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

/// What the program that records, and who teaches the service, must agree on to get the same bits.
namespace service {

inline constexpr std::uint64_t kSeed = 11;
inline constexpr std::int64_t kBatchSize = 32;
/// So many images at a time are predicted, a variant each.
inline constexpr std::array<std::int64_t, 2> kPredicted = {1, 16};
/// Steps before the trace is saved, and after it.
inline constexpr std::int64_t kRecorded = 40;
inline constexpr std::int64_t kLearned = 1000;

/// Of step `step`, counted from the training's first: falls along a cosine to zero.
inline double learning_rate(std::int64_t step) {
  constexpr double kPeak = 3e-3;
  const double progress = static_cast<double>(step) / (kRecorded + kLearned);
  return kPeak * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace service
