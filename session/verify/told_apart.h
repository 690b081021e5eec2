#pragma once

#include "trace/compare/compare.h"
#include "trace/model.h"

namespace steptape::session {

/// Whether two recordings that were entered in the same way part only because the step read another
/// value from a tensor, or an op left a tensor of another shape: a replay of either finds out that
/// it is the other one's turn. Not so where anything else that may differ from call to call, such
/// as a literal, did before that: what was read may then follow from it, and a plan, in which it is
/// fixed, would never find out. `parted` is their first difference.
bool told_apart_by_reads(const trace::Recording& a, const trace::Recording& b,
                         const trace::Difference& parted);

}  // namespace steptape::session
