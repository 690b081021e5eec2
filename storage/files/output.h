#pragma once

#include <cstdint>

#include "storage/trace/wire.h"

namespace steptape::storage {

/// A file that is written from its start to its end.
class Output {
 public:
  virtual ~Output() = default;

  /// Throws Error (io).
  virtual void append(ByteView bytes) = 0;
  /// How many were appended.
  virtual std::uint64_t bytes() const noexcept = 0;
};

}  // namespace steptape::storage
