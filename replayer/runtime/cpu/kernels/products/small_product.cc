#include "replayer/runtime/cpu/kernels/products/small_product.h"

#include <ATen/Version.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "replayer/planner/analysis/writes.h"
#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/cpu/kernels/preparation.h"
#include "replayer/runtime/cpu/kernels/products/product_kernel.h"

namespace steptape::replayer::cpu {
namespace {

/// From here on BLAS multiplies in blocks, which is another order of additions.
constexpr std::int64_t kMostDepth = 256;

/// A way to multiply, and up to which size it was seen to be faster than BLAS.
struct Multiplication {
  const matrices::Code* code;
  std::int64_t most_terms;
};

/// Those of this processor, as far as ATen uses it, the fastest first.
std::span<const Multiplication> multiplications() {
  static constexpr Multiplication kMultiplications[] = {
      {&matrices::kAvx512, std::int64_t{64} * 256 * 256},
      {&matrices::kAvx2, std::int64_t{32} * 128 * 128}};
  if (!has_atens_vectors()) return {};
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512f") &&
                                 __builtin_cpu_supports("avx512vl") &&
                                 at::get_cpu_capability() != "AVX2";
#else
  static const bool has_avx512 = false;
#endif
  return std::span(kMultiplications).subspan(has_avx512 ? 0 : 1);
}

}  // namespace

SmallProduct::SmallProduct(const MatrixProduct& product, const Found& found)
    : product_(product), code_(found.code), pays_only_packed_(found.pays_only_packed) {
  const auto& [a, b, bias, result] = product;
  shape_ = {.rows = result.size(0),
            .columns = result.size(1),
            .depth = a.size(1),
            .a_row = a.stride(0),
            .a_column = a.stride(1),
            .b_row = b.stride(0),
            .b_column = b.stride(1),
            .c_row = result.size(1)};
  packs_ = code_->room(shape_) != 0;
  if (packs_) packed_ = std::make_shared<std::vector<float>>();
}

SmallProduct::Found SmallProduct::try_out(const MatrixProduct& product,
                                          const ProductAddresses& addresses, bool blas_is_alone) {
  const std::int64_t terms = product.result.numel() * product.a.size(1);
  ProductTrial trial(product, addresses);
  std::optional<Sgemm> blas = Sgemm::make(trial.product());
  if (!blas) return {};
  if (blas_is_alone) blas->go_alone();
  const auto by_blas = [&] { blas->run(); };
  // one look at the bits and the time, which most that fail do not pass, then all of them
  for (const bool is_packed : {false, true}) {
    for (const Multiplication& way : multiplications()) {
      if (terms > way.most_terms) continue;
      SmallProduct own(trial.product(), {way.code});
      if (is_packed && own.packed_ == nullptr) continue;
      if (!trial.agree_once(by_blas, [&] { return own.run(); })) return {};
      own.packs_ = own.packs_ && !is_packed;
      if (!ProductTrial::is_faster([&] { own.run(); }, by_blas)) continue;
      own.packs_ = own.packed_ != nullptr;
      if (!trial.agree(by_blas, [&] { return own.run(); })) return {};
      return {way.code, is_packed};
    }
  }
  return {};
}

std::optional<SmallProduct> SmallProduct::make(const MatrixProduct& product,
                                               const ProductAddresses& addresses,
                                               bool blas_is_alone) {
  const std::int64_t depth = product.a.size(1);
  const std::int64_t terms = product.result.numel() * depth;
  if (multiplications().empty() || depth > kMostDepth ||
      terms > multiplications().front().most_terms) {
    return std::nullopt;
  }
  static std::mutex mutex;
  static std::map<std::vector<std::int64_t>, Found> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(kind_of(product, addresses));
  if (is_new) entry->second = try_out(product, addresses, blas_is_alone);
  if (entry->second.code == nullptr) return std::nullopt;
  return SmallProduct(product, entry->second);
}

bool SmallProduct::holds_at(const ProductAddresses& addresses, bool blas_is_alone) const {
  const std::optional<SmallProduct> there = make(product_, addresses, blas_is_alone);
  return there && there->code_ == code_;
}

void SmallProduct::pack() {
  if (!packs_) return;
  make_room();
  shape_.b = floats_of(product_.b);
  shape_.packed = packed_->data();
  code_->pack(shape_);
}

bool SmallProduct::run() {
  shape_.a = floats_of(product_.a);
  shape_.b = floats_of(product_.b);
  shape_.c = writable_floats_of(product_.result);
  shape_.bias = product_.bias.defined() ? floats_of(product_.bias) : nullptr;
  if (packs_) make_room();
  shape_.packed = packed_ == nullptr ? nullptr : packed_->data();
  if (packs_) code_->pack(shape_);
  return code_->multiply(shape_);
}

bool SmallProduct::can_share_with(const SmallProduct& other) const {
  const at::Tensor &b = product_.b, &of_other = other.product_.b;
  return packed_ != nullptr && code_ == other.code_ &&
         b.storage().unsafeGetStorageImpl() == of_other.storage().unsafeGetStorageImpl() &&
         b.storage_offset() == of_other.storage_offset() && b.sizes() == of_other.sizes() &&
         b.strides() == of_other.strides();
}

void SmallProduct::make_room() { packed_->resize(static_cast<std::size_t>(code_->room(shape_))); }

void SmallProduct::share_with(SmallProduct& other) {
  other.make_room();
  packed_ = other.packed_;
  packs_ = false;
}

namespace {

/// Packing takes about as long as a product of eight rows: where a product is faster than BLAS only
/// with a factor that is packed already, so many have to read it.
constexpr std::size_t kFewestReaders = 4;

/// Products with one second factor that nobody writes from the first of them to the last.
struct Group {
  bool is_once;
  std::vector<ProductKernel*> products;

  SmallProduct& first() const { return *products.front()->small(); }
  bool takes(const SmallProduct& product, bool once) const {
    return is_once == once && product.can_share_with(first());
  }
  void end() const {
    const bool need_more = std::ranges::any_of(
        products, [](ProductKernel* product) { return product->small()->pays_only_packed(); });
    if (products.size() < (need_more ? kFewestReaders : 2)) return;
    for (ProductKernel* product : products) {
      if (product != products.front()) product->small()->share_with(first());
      product->multiply_here();
    }
  }
};

/// The groups that the next call may join, by the storage of their factor.
class OpenGroups {
 public:
  void add(ProductKernel& product, bool is_once) {
    std::vector<Group>& groups = of_storage_[product.small()->factor()];
    const auto group = std::ranges::find_if(
        groups, [&](const Group& other) { return other.takes(*product.small(), is_once); });
    if (group != groups.end()) {
      group->products.push_back(&product);
    } else {
      groups.push_back({is_once, {&product}});
    }
  }

  void end_of(const c10::StorageImpl* written) {
    const auto groups = of_storage_.find(written);
    if (groups == of_storage_.end()) return;
    for (const Group& group : groups->second) group.end();
    of_storage_.erase(groups);
  }

  void end_all() {
    for (const auto& [storage, groups] : of_storage_) {
      for (const Group& group : groups) group.end();
    }
    of_storage_.clear();
  }

 private:
  std::unordered_map<const c10::StorageImpl*, std::vector<Group>> of_storage_;
};

}  // namespace

void share_packed_factors(const Program& program, const Memory& memory, std::vector<Call>& calls) {
  const trace::Recording& recording = *program.recording;
  OpenGroups open;
  for (Call& call : calls) {
    for (const trace::BufferId id : written_by(recording, recording.ops[call.op])) {
      open.end_of(memory.storage(id));
    }
    for (const trace::TensorId id : call.placed) {
      open.end_of(memory.storage(recording.tensors[id].buffer));
    }
    auto* product = dynamic_cast<ProductKernel*>(call.kernel.get());
    if (product == nullptr || product->small() == nullptr || !product->small()->packs()) continue;
    open.add(*product, call.is_once);
  }
  open.end_all();
}

}  // namespace steptape::replayer::cpu
