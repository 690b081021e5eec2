#include "recorder/intercept/interceptor.h"

#include "recorder/intercept/interceptors.h"
#include "steptape/error.h"

namespace steptape::recorder {

Interceptor& interceptor(InterceptorKind kind) {
  switch (kind) {
    case InterceptorKind::kDispatchMode:
      return dispatch_mode();
    case InterceptorKind::kFakeKey:
      return fake_key();
  }
  throw Error(ErrorCode::kInvalidArgument, "no interceptor of this kind exists");
}

}  // namespace steptape::recorder
