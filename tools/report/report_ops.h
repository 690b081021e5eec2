#pragma once

#include <nlohmann/json.hpp>

#include "trace/model.h"

namespace steptape::tools {

/// The ops of a recording with their operators, tensors and buffers, for the page: by column, so
/// that 100,000 ops take some megabytes. An id or index that is none stands as -1. An argument is
/// the id of a tensor, a list of arguments, or a text; null stands for none.
nlohmann::ordered_json report_ops(const trace::Recording& recording);

}  // namespace steptape::tools
