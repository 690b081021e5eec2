#pragma once

#include <nlohmann/json.hpp>

#include "diff/ledger/op_times.h"

namespace steptape::tools {

/// How long the ops of a step, and of each of its modules, took on both sides.
nlohmann::ordered_json op_times_json(const diff::OpTimeDifferences& times);

}  // namespace steptape::tools
