#pragma once

#include <vector>

#include "recorder/frontend_hints.h"
#include "trace/model.h"

namespace steptape::recorder {

/// Finds the announced numbers among the arguments of an op: its scalars, the items of its lists,
/// and the one element of each tensor that the host made for it, whose buffers start at
/// `first_new`; but none at arguments that cannot follow a number (`may_follow`, one for each):
/// sizes, positions, what a view is made of. Where several announced numbers are equal, the first
/// is taken and the recording holds while the others stay equal to it. One that equals another
/// number of the op may be that one (FrontendHints::doubt).
void take_announced(FrontendHints& hints, const trace::Recording& recording, const trace::Op& op,
                    trace::Index index, trace::BufferId first_new,
                    const std::vector<bool>& may_follow);

}  // namespace steptape::recorder
