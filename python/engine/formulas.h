#pragma once

#include "python/engine/python.h"
#include "recorder/notes.h"
#include "trace/formula.h"

namespace steptape::python {

/// A formula as Python has it: a tuple in reverse Polish order of floats, of leaves, which are
/// pairs (kind, path), and of names of operations.
trace::Formula formula_of(recorder::Notes& notes, const py::tuple& nodes);

}  // namespace steptape::python
