#pragma once

#include <set>

#include "trace/model.h"

namespace steptape::replayer {

/// What the program said about values that its steps read from tensors.
enum class Reads {
  kMayDecide,   ///< a read that nothing explains must stay as it was
  kForLooking,  ///< the step does nothing with them but look
};

/// Finds out, from two recordings of one step that differ in host numbers alone, what those numbers
/// follow from, and writes it down in `now`: an op's scalar or the element of a host-made tensor
/// that had the bits of an argument, host value, hyperparameter or host read in both, while these
/// changed, is bound to it; a number that the step returned is bound to the host read that gave it.
/// What stays unexplained is left as it is, for trace::first_difference to find.
/// With `only`, nothing but the host reads of these ops is matched by its bits: what else the
/// program's numbers follow is known already.
void infer_bindings(const trace::Recording& before, trace::Recording& now, Reads reads,
                    const std::set<trace::Index>* only = nullptr);

/// Binds the numbers of `now` as those of `known`, whose ops it repeats in another shape, are
/// bound. Both have the same stream of ops (trace::same_op_stream). False when one of them is not
/// what its formula gives: then `known` explains it no longer.
bool take_over_numbers(const trace::Recording& known, trace::Recording& now);

}  // namespace steptape::replayer
