#pragma once

#include <span>
#include <vector>

#include "replayer/player/weights/weights_file.h"
#include "storage/files/input_file.h"

/// The safetensors format: https://github.com/huggingface/safetensors
namespace steptape::replayer {

/// The tensors must be contiguous. Throws Error (unsupported) for a dtype that the format has no
/// name for, and what `out` throws.
void write_safetensors(std::span<const NamedTensor> tensors, storage::Output& out);

/// See read_weights.
std::vector<NamedTensor> read_safetensors(const storage::InputFile& file);

}  // namespace steptape::replayer
