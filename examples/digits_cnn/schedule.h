#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

/// What both programs of the example must agree on to get the same bits.
namespace digits_cnn {

inline constexpr std::uint64_t kSeed = 11;
inline constexpr std::int64_t kBatchSize = 32;
/// Kernels of this size gain nothing from a second thread; and another number gives other bits.
inline constexpr int kThreads = 1;
inline constexpr std::int64_t kSteps = 1000;
/// The trace is saved before this step; the second program starts with it.
inline constexpr std::int64_t kSavedAt = 500;

/// Of step `step`: rises linearly for a tenth of the training, then falls along a cosine to zero.
inline double learning_rate(std::int64_t step) {
  constexpr double kPeak = 3e-3;
  constexpr std::int64_t kWarmUp = kSteps / 10;
  if (step < kWarmUp) return kPeak * static_cast<double>(step + 1) / kWarmUp;
  const double progress = static_cast<double>(step - kWarmUp) / (kSteps - kWarmUp);
  return kPeak * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace digits_cnn
