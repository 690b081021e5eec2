#pragma once

namespace steptape::python {

/// Guards compare the hooks of tensors from Python from here on, by their keys and by which objects
/// they are.
void watch_tensor_hooks();

}  // namespace steptape::python
