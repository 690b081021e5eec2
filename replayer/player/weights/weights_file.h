#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "storage/files/file_system.h"

namespace steptape::replayer {

/// An entry of a file of weights.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;  ///< on the CPU
};

/// Of a contiguous tensor.
inline std::span<const std::byte> bytes_of(const NamedTensor& entry) {
  return {static_cast<const std::byte*>(entry.tensor.const_data_ptr()), entry.tensor.nbytes()};
}

// Files of named tensors that other programs read and write: PyTorch's state dicts and
// safetensors.

/// Writes them in this order, as safetensors where `path` ends in ".safetensors", else as the state
/// dict that `torch.load(path, weights_only=True)` reads. The file appears whole or not at all; one
/// that exists is replaced, unless it is a trace. Throws Error: (io); (unsupported) for a dtype
/// that the format has no name for; (failed_precondition) when the path may not be replaced.
void write_weights(std::span<const NamedTensor> tensors, const std::filesystem::path& path,
                   storage::FileSystem& files = storage::operating_system());

/// The tensors of such a file, in its order, in memory of their own; its first bytes say which
/// kind it is. Dicts within dicts become names with dots, numbers tensors without
/// dimensions; strings and None are passed over. Nothing in the file is run, and what
/// is allocated is bounded by its size. Throws Error: (io); (data_loss) when it is damaged;
/// (unsupported) when it holds what is neither.
std::vector<NamedTensor> read_weights(const std::filesystem::path& path,
                                      storage::FileSystem& files = storage::operating_system());

}  // namespace steptape::replayer
