#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace char_gru {

/// A text as numbers.
struct Text {
  std::string alphabet;  ///< every byte that occurs, in ascending order, once
  at::Tensor codes;      ///< int64 [n], positions in `alphabet`
};

/// Reads a file, byte for byte. Throws std::runtime_error that names it when it cannot be read or
/// is empty.
Text read(const std::filesystem::path& path);

/// An endless stream of training batches: the text is cut into `streams` equal parts, which are
/// read side by side, `length` characters a batch. Each batch goes on where the one before ended,
/// so that a hidden state can be carried over; after the last one the parts are read again.
class Batches {
 public:
  struct Batch {
    at::Tensor characters;  ///< int64 [length, streams]
    at::Tensor next;        ///< the same, one character further on: what is to be foretold
    bool starts = false;    ///< the parts are read from their beginnings
  };

  /// Throws std::invalid_argument when there is not one whole batch.
  Batches(const Text& text, std::int64_t streams, std::int64_t length);

  /// Batch number `step` of the stream, as new tensors.
  Batch at(std::int64_t step) const;
  /// Batches until the parts are read again.
  std::int64_t per_pass() const { return characters_.size(0) / length_; }

 private:
  std::int64_t length_;
  at::Tensor characters_;  ///< of all batches of a pass
  at::Tensor next_;
};

}  // namespace char_gru
