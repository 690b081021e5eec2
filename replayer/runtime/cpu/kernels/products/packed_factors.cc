#include "replayer/runtime/cpu/kernels/products/packed_factors.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "replayer/planner/analysis/writes.h"
#include "replayer/runtime/cpu/kernels/products/product_kernel.h"

namespace steptape::replayer::cpu {
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
