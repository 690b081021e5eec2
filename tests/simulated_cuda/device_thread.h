#pragma once

#include <functional>

namespace steptape::tests::simulated {

/// Runs `work` on the one thread that does all of the device's work and returns when it is done:
/// none of the caller's thread-local state (dispatch keys, grad mode, recorders) reaches it. What
/// `work` throws is thrown to the caller. The caller holds the runtime's mutex.
void run_on_device_thread(const std::function<void()>& work);

}  // namespace steptape::tests::simulated
