#pragma once

#include <cstdint>
#include <span>

#include "live/objects.h"
#include "steptape/pack.h"

/// What a ledger compares two runs by: bits, dtypes and shapes, as one number each. Never 0, which
/// is for what was not taken; tensors that are not plain, or not on the CPU, count by their place
/// alone.
namespace steptape::session {

std::uint64_t digest_of(const pack::Results& results);
std::uint64_t digest_of(std::span<const pack::Leaf> arguments);

/// Of what tracked objects hold now.
struct StateDigests {
  std::uint64_t gradients = 0;
  std::uint64_t parameters = 0;  ///< and module buffers
  std::uint32_t generators = 0;

  static StateDigests take(const live::Objects& objects);
};

}  // namespace steptape::session
