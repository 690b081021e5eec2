#include "replayer/runtime/cpu/kernels/table.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/Version.h>

#include <algorithm>

#include "live/tensors.h"
#include "live/values.h"

namespace steptape::replayer::cpu {

bool KernelSite::is_literal(const at::Tensor& tensor) const {
  return memory.literals.contains(tensor.storage().unsafeGetStorageImpl());
}

bool KernelSite::is_fixed(const at::Tensor& tensor) const {
  return memory.fixed.contains(tensor.storage().unsafeGetStorageImpl());
}

bool KernelSite::is_moving(const at::Tensor& tensor) const {
  return memory.moving.contains(tensor.storage().unsafeGetStorageImpl());
}

std::uint8_t KernelSite::address_mod_64(const at::Tensor& tensor) const {
  const auto found = memory.address_mod_64.find(tensor.storage().unsafeGetStorageImpl());
  const auto first = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  return ((found == memory.address_mod_64.end() ? 0 : found->second) + first) % 64;
}

bool is_for_one_thread(std::int64_t elements, int gain) {
  return elements < at::internal::GRAIN_SIZE || at::get_num_threads() <= gain;
}

bool has_atens_vectors() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          at::get_cpu_capability() != "DEFAULT" &&
                          at::get_cpu_capability() != "NO AVX";
  return has;
#else
  return false;
#endif
}

namespace {

std::string name_of(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name()
                                        : schema.name() + "." + schema.overload_name();
}

}  // namespace

void KernelTable::add_filling(std::string_view name, Make make) {
  add(name, make);
  filling_.emplace(name);
}

const std::vector<KernelTable::Make>* KernelTable::find(const c10::FunctionSchema& schema) const {
  const auto found = rows_.find(name_of(schema));
  return found == rows_.end() ? nullptr : &found->second;
}

bool KernelTable::fills_results(const c10::FunctionSchema& schema) const {
  return filling_.contains(name_of(schema));
}

std::vector<std::string> KernelTable::names() const {
  std::vector<std::string> names;
  for (const auto& [name, ways] : rows_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

const KernelTable& KernelTable::all() {
  static const KernelTable table = [] {
    KernelTable made;
    add_elementwise_kernels(made);
    add_copy_kernels(made);
    add_product_kernels(made);
    add_reduction_kernels(made);
    add_pooling_kernels(made);
    add_normalization_kernels(made);
    add_structured_kernels(made);
    return made;
  }();
  return table;
}

namespace {

/// Tensors that the dispatcher would turn into others first.
bool is_plain(const at::Tensor& tensor) {
  return !tensor.defined() || (tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
                               !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor());
}

bool has_plain_tensors(const KernelSite& site) {
  bool is_good = std::ranges::all_of(site.results, is_plain);
  for (const c10::IValue& value : site.call.arguments) {
    live::for_each_tensor(value,
                          [&](const at::Tensor& tensor) { is_good = is_good && is_plain(tensor); });
  }
  return is_good;
}

}  // namespace

Preparation prepare(const KernelSite& site) {
  const auto* ways = KernelTable::all().find(site.call.callee.schema());
  if (ways == nullptr) return Preparation::refused("no kernel for this operator");
  if (site.results.empty()) return Preparation::refused("results that the program gave it");
  if (!has_plain_tensors(site)) return Preparation::refused("a tensor that stands for another");
  Preparation made = Preparation::refused("no kernel for this operator");
  for (const KernelTable::Make make : *ways) {
    try {
      made = make(site);
    } catch (const c10::Error&) {
      made = Preparation::refused("arguments that the op does not take here");
    }
    if (made.kernel) break;
  }
  return made;
}

void dispatch(const Call& call, const std::vector<at::Tensor>& results) {
  torch::jit::Stack stack(call.arguments);
  call.callee.callBoxed(stack);
  if (call.copies) copy_made(stack, results);
}

void copy_made(const torch::jit::Stack& stack, const std::vector<at::Tensor>& results) {
  std::size_t next = 0;
  for (const c10::IValue& value : stack) {
    live::for_each_tensor(value, [&](const at::Tensor& made) { results.at(next++).copy_(made); });
  }
}

}  // namespace steptape::replayer::cpu
