#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COWDeleter.h>

namespace steptape::live {

/// Whether the memory of a storage is that of a lazy clone too (at::_lazy_clone): an op of torch
/// gives it memory of its own before it writes, and who writes by address must not.
inline bool is_lazily_shared(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == &c10::impl::cow::cow_deleter;
}

}  // namespace steptape::live
