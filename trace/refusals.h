#pragma once

#include <cstddef>
#include <string>

#include "steptape/refusal.h"
#include "trace/model.h"

namespace steptape::trace {

Refusal make_refusal(RefusalCode code, std::string message);

/// With the name, module and place of op `op`, which the recording has.
Refusal refusal_at(const Recording& recording, std::size_t op, RefusalCode code,
                   std::string message);

}  // namespace steptape::trace
