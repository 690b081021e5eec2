#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <vector>

#include "live/tensors.h"
#include "trace/model.h"

namespace steptape::live {

/// While it lives this thread's calls of operators are seen by no recorder, mode, autograd or
/// autocast.
class Unseen {
 public:
  Unseen();

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

/// Copies bytes within a device, or between it and the host, in the order of the current stream.
/// Returns when the host's part is done. Seen by no recorder.
void copy_bytes(void* to, c10::Device to_device, const void* from, c10::Device from_device,
                std::size_t bytes);

/// The bytes at an address of `device`.
std::vector<std::byte> bytes_on_host(const void* from, c10::Device device, std::size_t bytes);

/// Its bytes, for a trace.
trace::Blob blob_of(const Memory& memory);

/// Whether an element is an infinity or a NaN. Tensors of integers, and those that are not plain or
/// not on the CPU, have none. Calls no operator where the elements lie one after the other.
bool has_nonfinite(const at::Tensor& tensor);

/// The largest difference between elements of two plain tensors of one shape and dtype, as a share
/// of the largest magnitude in either. 0 where both have the same values, NaN being one of them;
/// infinite where an infinity or a NaN stands against something else, or the shapes differ. Seen by
/// no recorder.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace steptape::live
