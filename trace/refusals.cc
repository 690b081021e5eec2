#include "trace/refusals.h"

#include <utility>

namespace steptape::trace {

Refusal make_refusal(RefusalCode code, std::string message) {
  Refusal refusal;
  refusal.code = code;
  refusal.message = std::move(message);
  return refusal;
}

Refusal refusal_at(const Recording& recording, std::size_t op, RefusalCode code,
                   std::string message) {
  const Op& found = recording.ops[op];
  Refusal refusal = make_refusal(code, std::move(message));
  refusal.op = recording.operator_of(found).full_name();
  refusal.op_index = static_cast<std::int64_t>(op);
  if (found.module != kNone) refusal.module = recording.modules[found.module].path;
  if (found.scope != kNone) refusal.place = recording.scopes[found.scope];
  return refusal;
}

}  // namespace steptape::trace
