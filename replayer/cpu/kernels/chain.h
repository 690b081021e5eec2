#pragma once

#include <memory>
#include <span>

#include "replayer/cpu/kernels/elementwise.h"

namespace steptape::replayer::cpu {

/// Does the calls, which follow each other, in one pass over memory: ops that touch the same
/// elements are run one after the other over a stretch that the processor's cache holds, then over
/// the next. Ops that share no memory may change places. Leaves the bits that the kernels leave one
/// after the other. No kernel may write a tensor that a later one takes as a number. The kernels
/// must outlive it.
std::unique_ptr<Kernel> chain(std::span<ElementwiseKernel* const> kernels);

}  // namespace steptape::replayer::cpu
