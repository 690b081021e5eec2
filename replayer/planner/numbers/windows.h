#pragma once

#include <set>

#include "trace/model.h"

namespace steptape::replayer {

/// Makes windows (trace::Window) of what these ops, of those that trace::gives_windows, give: the
/// numbers that say where move. Returns the ops of which none could be made, as the step uses that
/// memory elsewhere, too, and writes it, or lets others see the view: those numbers must stay.
/// Of memory in `kept` none can be made: the step asks where in it a tensor lies.
/// A view that is, in this recording, the very tensor that is found or made in another way, too, is
/// none either. `recording` must name operators of this process, and have no windows.
std::set<trace::Index> make_windows(trace::Recording& recording, const std::set<trace::Index>& ops,
                                    const std::set<trace::BufferId>& kept = {});

/// A recording of the same step with other numbers, which nobody has bound, with the windows of
/// `plan`; as it is where both do not name the same tensors.
trace::Recording with_windows_of(const trace::Recording& plan, const trace::Recording& recording);

}  // namespace steptape::replayer
