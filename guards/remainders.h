#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace steptape::guards {

/// The address remainders, modulo 64, that the inputs of a plan had together when it was compared
/// with the eager step. Operators pick other kernels by them, so a plan, which calls the same ones
/// on the same addresses, holds for others as well, but not untried.
class Remainders {
 public:
  explicit Remainders(std::size_t inputs) : now_(inputs) {}

  /// Of the check under way.
  void note(std::size_t input, std::uint8_t remainder) { now_[input] = remainder; }
  /// Whether those of the newest check were compared.
  bool are_proved() const;
  /// Whether the plan may be tried at others than those that were compared.
  bool are_open() const { return is_open_ && proved_.size() < kMost; }
  /// Those of the newest check were compared.
  void settle();
  /// From here on the plan holds for those that were compared alone.
  void pin() { is_open_ = false; }

 private:
  static constexpr std::size_t kMost = 256;

  std::vector<std::uint8_t> now_;
  std::vector<std::vector<std::uint8_t>> proved_;
  mutable std::size_t newest_ = 0;  ///< of `proved_`
  bool is_open_ = true;
};

}  // namespace steptape::guards
