#pragma once

#include <string_view>
#include <vector>

#include "replayer/player/weights/pickled_entry.h"

namespace steptape::replayer {

/// The tensors and numbers of a pickled dict, in its order. Dicts within it give names with dots,
/// lists and tuples names with brackets: "param_groups[0].lr"; strings and None are passed over.
/// Understands what torch.save writes for state dicts, and calls nothing: a pickle that calls
/// anything else is refused. Geometries are non-negative and lie within their storage. Time and
/// memory are bounded by the pickle's length. Throws Error: (data_loss) when it is damaged;
/// (unsupported) when it is more than a state dict.
std::vector<PickledEntry> read_pickle(std::string_view bytes);

}  // namespace steptape::replayer
