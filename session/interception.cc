#include "session/interception.h"

#include "steptape/error.h"

namespace steptape::session {

recorder::Interceptor& interceptor_of(Interception choice) {
  return recorder::interceptor(choice == Interception::kFakeKey
                                   ? recorder::InterceptorKind::kFakeKey
                                   : recorder::InterceptorKind::kDispatchMode);
}

recorder::Interceptor* listener_of(Interception choice) {
  if (choice != Interception::kFakeKey) return nullptr;
  try {
    return &interceptor_of(choice);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace steptape::session
