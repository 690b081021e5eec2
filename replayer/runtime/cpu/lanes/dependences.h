#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "replayer/runtime/uses.h"

namespace steptape::replayer::cpu {

/// For each of some pieces of work, given in the order of a run by what they use, those before it
/// that must be done first: it reads what they write, or writes what they read or write. What
/// follows from others may be left out.
std::vector<std::vector<std::size_t>> dependences_of(std::span<const std::vector<Use>> uses);

}  // namespace steptape::replayer::cpu
