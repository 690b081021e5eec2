#pragma once

#include "python/engine/python.h"
#include "python/engine/words.h"
#include "steptape/session.h"

namespace steptape::python {

/// What a step has done, with refusals and fallbacks in `words`. Times are in microseconds, sizes
/// in bytes. The GIL is held.
py::dict as_dict(const Stats& stats, const Words& words);

}  // namespace steptape::python
