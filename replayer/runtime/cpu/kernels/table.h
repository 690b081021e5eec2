#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "replayer/runtime/call.h"
#include "replayer/runtime/cpu/kernels/preparation.h"

namespace steptape::replayer::cpu {

/// Which operators have kernels: "aten::mul.out" → ways to make one, the best first. Files of
/// kernels add their rows; nothing else knows an operator by its name.
class KernelTable {
 public:
  /// No tensor of the site is one that the dispatcher would turn into another first.
  using Make = Preparation (*)(const KernelSite& site);

  /// A way is taken where those before it refuse.
  void add(std::string_view name, Make make) { rows_[std::string(name)].push_back(make); }
  /// The same of an operator that has no out variant: its kernel fills results that are there.
  void add_filling(std::string_view name, Make make);
  /// The ways to make the operator's kernel; null where there are none.
  const std::vector<Make>* find(const c10::FunctionSchema& schema) const;
  bool fills_results(const c10::FunctionSchema& schema) const;
  /// Of every operator with a kernel, sorted.
  std::vector<std::string> names() const;

  /// All kernels of this build.
  static const KernelTable& all();

 private:
  std::unordered_map<std::string, std::vector<Make>> rows_;
  std::unordered_set<std::string> filling_;
};

/// Makes a kernel whose arithmetic is compiled for the vectors that ATen's has.
template <KernelTable::Make kMake>
Preparation with_atens_vectors(const KernelSite& site) {
  if (!has_atens_vectors()) return Preparation::refused("a processor without AVX2 and FMA");
  return kMake(site);
}

void add_elementwise_kernels(KernelTable& table);
void add_copy_kernels(KernelTable& table);
void add_product_kernels(KernelTable& table);
void add_reduction_kernels(KernelTable& table);
void add_pooling_kernels(KernelTable& table);
void add_normalization_kernels(KernelTable& table);
void add_structured_kernels(KernelTable& table);

/// Does the call as it was recorded: what a kernel falls back to where it finds values whose bits
/// it does not vouch for. `results` are those that KernelSite has. Throws what the op throws.
void dispatch(const Call& call, const std::vector<at::Tensor>& results);

/// Copies the tensors that a call left on the stack to the results that are there for them.
void copy_made(const torch::jit::Stack& stack, const std::vector<at::Tensor>& results);

}  // namespace steptape::replayer::cpu
