#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>

#include "recorder/intercept/interceptor.h"

namespace steptape::recorder {

/// The two implementations; each registers what it needs at its first call.
Interceptor& dispatch_mode();
Interceptor& fake_key();

/// Whether a call of `op` with these keys runs its CompositeImplicitAutograd kernel: other ops and
/// nothing else. Autograd decomposes such ops before an interceptor sees them; in inference mode
/// it does not, and the interceptor lets what is inside come to itself.
inline bool runs_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         !op.hasKernelForDispatchKey(keys.highestPriorityTypeId());
}

}  // namespace steptape::recorder
