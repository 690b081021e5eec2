#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace steptape::recorder {

/// Smallest and largest element of an integral CPU tensor; none for others, bool and empty ones.
std::optional<std::pair<std::int64_t, std::int64_t>> range_of(const at::Tensor& tensor);

}  // namespace steptape::recorder
