#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// A tensor of a pickled state dict; its elements lie in a record of the archive.
struct PickledTensor {
  std::string storage;     ///< name of the record, "0"
  std::int64_t bytes = 0;  ///< of the whole record
  trace::Tensor geometry;  ///< on the record; its buffer is 0
};

/// A leaf of a pickled state dict.
struct PickledEntry {
  std::string name;
  std::variant<PickledTensor, bool, std::int64_t, double> value;
};

/// "FloatStorage", by which a pickle of PyTorch names elements; empty for dtypes that came after
/// the last such name. Their storages are untyped, and the tensor names the dtype.
std::string_view storage_type_of(trace::DType dtype) noexcept;
std::optional<trace::DType> dtype_of_storage_type(std::string_view name) noexcept;

/// The tensors and numbers of a pickled dict, in its order. Dicts within it give names with dots,
/// lists and tuples names with brackets: "param_groups[0].lr"; strings and None are passed over.
/// Understands what torch.save writes for state dicts, and calls nothing: a pickle that calls
/// anything else is refused. Geometries are non-negative and lie within their storage. Time and
/// memory are bounded by the pickle's length. Throws Error: (data_loss) when it is damaged;
/// (unsupported) when it is more than a state dict.
std::vector<PickledEntry> read_pickle(std::string_view bytes);

/// A pickle, of protocol 2, of the dict that has these tensors and numbers. PyTorch reads it with
/// `weights_only=True`: nothing else is called in it than what rebuilds a tensor.
std::string write_pickle(std::span<const PickledEntry> entries);

}  // namespace steptape::replayer
