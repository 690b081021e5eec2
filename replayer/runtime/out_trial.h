#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "replayer/runtime/call.h"

namespace steptape::replayer {

/// Some out variants do not write the results that they are given: `huber_loss.out` makes the loss
/// of each element its result, grows it for that with a warning, and hands back another tensor. No
/// schema tells. So the first run of a plan does each out variant over results of its own, and by
/// the operator itself from then on where they are not found as they were given.
///
/// Calls the out variant of `call`, and copies what it makes to `placed`, the plan's memory for it.
/// False: it does not keep its results, and nothing was written. `stack` is left with `placed`.
bool try_out_variant(const Call& call, const std::vector<at::Tensor>& placed,
                     torch::jit::Stack& stack);

/// Makes it a call of the recorded operator, whose results are copied.
void give_up_out_variant(Call& call, const c10::OperatorHandle& recorded);

}  // namespace steptape::replayer
