#pragma once

#include "python/engine/python.h"
#include "steptape/session.h"

namespace steptape::python {

/// Options from a dict that holds all of them by their names in Python, checked there but for the
/// choices: throws Error that lists those of an option. The GIL is held.
Options options_of(const py::dict& options);

}  // namespace steptape::python
