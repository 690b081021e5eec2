#pragma once

#include <span>
#include <vector>

#include "replayer/player/weights/weights_file.h"
#include "storage/files/input_file.h"

/// State dicts as torch.save writes them since PyTorch 1.6: a zip archive with a pickle of the
/// dict, "data.pkl", and the bytes of each storage, "data/0".
namespace steptape::replayer {

bool begins_like_a_state_dict(const storage::InputFile& file);

/// The tensors must be contiguous. Throws Error (unsupported) for a dtype that PyTorch has no name
/// for, and what `out` throws.
void write_state_dict(std::span<const NamedTensor> tensors, storage::Output& out);

/// See read_weights.
std::vector<NamedTensor> read_state_dict(const storage::InputFile& file);

}  // namespace steptape::replayer
