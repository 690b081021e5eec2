#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace steptape::fuzz {

/// A fuzzer's bytes as a row of decisions; when they are used up, each is the first.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  bool is_done() const { return bytes_.empty(); }
  /// Of `count` things, at least 1, one by its position.
  std::size_t of(std::size_t count) {
    std::size_t number = next();
    if (count > 256) number = number << 8 | next();
    return number % count;
  }
  bool flip() { return of(2) == 1; }

 private:
  std::size_t next() {
    if (bytes_.empty()) return 0;
    const std::size_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  std::span<const std::uint8_t> bytes_;
};

}  // namespace steptape::fuzz
