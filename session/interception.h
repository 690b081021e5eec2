#pragma once

#include "recorder/recorder.h"
#include "steptape/options.h"

namespace steptape::session {

/// What intercepts ops by this choice. Throws Error (unsupported) when nothing can.
recorder::Interceptor& interceptor_of(Interception choice);

/// The same for a verification, or null where it would change what the eager step computes: the
/// dispatch mode perturbs some eager steps, so that a verification under it would compare with
/// another step, and an interceptor that another library has is none.
recorder::Interceptor* listener_of(Interception choice);

}  // namespace steptape::session
