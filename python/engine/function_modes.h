#pragma once

namespace steptape::python {

/// Tells `live::Ambient` which torch-function modes are of torch.device or
/// torch.set_default_device.
void watch_function_modes();

}  // namespace steptape::python
