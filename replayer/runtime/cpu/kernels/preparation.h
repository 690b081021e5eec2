#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "replayer/runtime/call.h"

namespace steptape::replayer::cpu {

/// What is known before any run of the memory that the plan's tensors lie on, by storage.
struct PlannedMemory {
  std::unordered_set<const c10::StorageImpl*> literals;  ///< the trace's bytes in every run
  std::unordered_set<const c10::StorageImpl*> fixed;     ///< lies where it does now in every run
  std::unordered_map<const c10::StorageImpl*, std::uint8_t> address_mod_64;
  std::unordered_set<const c10::StorageImpl*> moving;  ///< may have another remainder in some runs
};

/// What a kernel is made from. The call and its tensors outlive the kernel.
struct KernelSite {
  const Call& call;  ///< numbers that change from run to run are put into its arguments before it
  std::vector<bool> varies;         ///< by argument: such a number, or a list with one
  std::vector<at::Tensor> results;  ///< on the plan's own memory; of an op in place what it writes
  const PlannedMemory& memory;

  /// Whether the bytes of this tensor are those of the trace in every run.
  bool is_literal(const at::Tensor& tensor) const;
  bool is_fixed(const at::Tensor& tensor) const;
  bool is_moving(const at::Tensor& tensor) const;
  /// Of its first element, in every run, or as recorded.
  std::uint8_t address_mod_64(const at::Tensor& tensor) const;
};

/// A kernel, or why there is none.
struct Preparation {
  std::unique_ptr<Kernel> kernel;
  std::string_view
      reason;  ///< a sentence's part that lives for ever: "no kernel for this operator"

  static Preparation refused(std::string_view reason) { return {nullptr, reason}; }
};

/// Whether one thread does so many elements as fast as ATen, which shares out what is large; `gain`
/// is how many of its threads a kernel is worth.
bool is_for_one_thread(std::int64_t elements, int gain = 1);
/// That of kernels over planes, pooling and batch norm, where ATen goes element by element.
inline constexpr int kGainOverPlanes = 4;

/// Whether the processor has AVX2 and FMA, and ATen uses them: its capability level can be lowered.
bool has_atens_vectors();

/// Makes the kernel of a call, by its operator. Throws nothing but std::bad_alloc.
Preparation prepare(const KernelSite& site);

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
