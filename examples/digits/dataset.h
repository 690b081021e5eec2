#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace digits {

inline constexpr std::int64_t kSide = 8;
inline constexpr std::int64_t kClasses = 10;

/// Images of hand-written digits and what they show.
struct Images {
  at::Tensor pixels;  ///< float32 [n, 64], row by row, 0 (paper) to 1 (ink)
  at::Tensor labels;  ///< int64 [n], 0 to 9
  std::int64_t count() const { return labels.numel(); }
};

/// Reads the file described in examples/digits/README.md: a line an image, 64 grey values from 0
/// to 16 and the label, separated by commas. Throws std::runtime_error with path, line, what was
/// expected and what was found.
Images read(const std::filesystem::path& path);

struct Split {
  Images train;
  Images test;
};

/// Every fifth image is for testing, the other four for training: the same in every process.
Split split(const Images& images);

/// An endless stream of training batches: each epoch holds every image at most once, in an order
/// that depends on `seed` and the epoch alone, the same with every standard library. What is left
/// over when an epoch does not divide by `batch_size` is dropped, so that all batches have one
/// shape.
class Batches {
 public:
  /// Throws std::invalid_argument when there is not one whole batch.
  Batches(Images images, std::int64_t batch_size, std::uint64_t seed);

  /// Batch number `step` of the stream, as new tensors.
  Images at(std::int64_t step);
  std::int64_t per_epoch() const { return images_.count() / batch_size_; }

 private:
  Images images_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  at::Tensor order_;  ///< of the images in `epoch_`
};

/// The numbers 0 to count - 1 in the order that `seed` and `epoch` give.
std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

}  // namespace digits
