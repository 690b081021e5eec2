#pragma once

#include <vector>

#include "trace/model.h"

namespace steptape::diff {

/// First and last op that takes or gives a tensor in a buffer; kNone where none does.
struct Lifetime {
  trace::Index first = trace::kNone;
  trace::Index last = trace::kNone;
};

/// One for each of Recording::buffers.
std::vector<Lifetime> lifetimes_of(const trace::Recording& recording);

}  // namespace steptape::diff
