#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "trace/digest.h"

/// What one call of an operator left, as one digest: to find the first op in which two runs of a
/// step part.
namespace steptape::live {

/// The arguments that a call of `op` writes.
std::vector<at::Tensor> written_tensors(const c10::OperatorHandle& op,
                                        c10::ArrayRef<c10::IValue> arguments);

/// What a call left: its results, then what it wrote. Tensors that are not plain are left out.
std::vector<at::Tensor> left_tensors(c10::ArrayRef<c10::IValue> results,
                                     const std::vector<at::Tensor>& written);

/// Of all of these, bits and shapes, in order.
trace::Digest digest_of(const std::vector<at::Tensor>& left);
trace::Digest op_digest(c10::ArrayRef<c10::IValue> results, const std::vector<at::Tensor>& written);

}  // namespace steptape::live
