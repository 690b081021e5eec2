#pragma once

#include <vector>

#include "trace/model.h"

namespace steptape::trace {

/// First and last op that takes or gives a tensor in a buffer; kNone where none does.
struct Lifetime {
  Index first = kNone;
  Index last = kNone;
};

/// One for each of Recording::buffers.
std::vector<Lifetime> lifetimes_of(const Recording& recording);

}  // namespace steptape::trace
