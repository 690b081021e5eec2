#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace steptape::replayer {

/// While it lives this thread calls ops as they were called below autograd: autograd, in-place
/// bookkeeping and autocast have had their turn when the step was recorded.
class BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::impl::ExcludeDispatchKeyGuard autocast_{c10::autocast_dispatch_keyset};
};

}  // namespace steptape::replayer
