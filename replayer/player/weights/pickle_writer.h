#pragma once

#include <span>
#include <string>

#include "replayer/player/weights/pickled_entry.h"

namespace steptape::replayer {

/// A pickle, of protocol 2, of the dict that has these tensors and numbers. PyTorch reads it with
/// `weights_only=True`: nothing else is called in it than what rebuilds a tensor.
std::string write_pickle(std::span<const PickledEntry> entries);

}  // namespace steptape::replayer
