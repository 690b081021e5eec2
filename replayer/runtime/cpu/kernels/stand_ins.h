#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <unordered_map>

namespace steptape::replayer::cpu {

/// Tensors that lie as others do, on memory that nobody may read or write. Before a plan's first
/// run its memory is not there, and some ops' `meta` copies: over stand-ins it works out shapes as
/// ever, and throws c10::Error where it reaches for bytes.
class StandIns {
 public:
  /// The same for the same tensor; those of tensors that share memory share theirs.
  at::Tensor of(const at::Tensor& tensor);
  /// With a stand-in for each tensor in it.
  c10::IValue of(const c10::IValue& value);

  /// Whether this is what a stand-in throws when it is asked for its bytes.
  static bool threw(const c10::Error& error);

 private:
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
};

}  // namespace steptape::replayer::cpu
