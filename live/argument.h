#pragma once

#include <ATen/core/Tensor.h>

#include "trace/value.h"

namespace steptape::live {

/// One argument of a step: a tensor, or a host value that must stay as it is.
struct Argument {
  at::Tensor tensor;  ///< may be undefined
  trace::Value fact;  ///< stands when `is_tensor` is false
  bool is_tensor = true;
};

}  // namespace steptape::live
