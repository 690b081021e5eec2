#pragma once

#include <string>

#include "steptape/player.h"
#include "trace/model.h"

namespace steptape::replayer {

/// "float32[16, 64]"
std::string words_of(const trace::Tensor& geometry);
std::string words_of(const TensorSpec& spec);
/// The same of a tensor in hand; "undefined".
std::string words_of(const at::Tensor& tensor);

}  // namespace steptape::replayer
