#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

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

}  // namespace steptape::replayer
