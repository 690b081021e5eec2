#pragma once

#include <vector>

#include "trace/model.h"

namespace steptape::trace {

/// Tensors that an op reads and writes, in the order of its arguments, each once.
struct OpUse {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
};

/// One for each of Recording::ops, as schemas and Op::unannotated_writes tell. An argument written
/// in place is read too; one that is given as output is not. An op that changes the geometry of its
/// argument alone, such as `aten::t_`, counts as one that writes it.
std::vector<OpUse> uses_of(const Recording& recording);

}  // namespace steptape::trace
