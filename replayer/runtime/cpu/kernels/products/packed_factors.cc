#include "replayer/runtime/cpu/kernels/products/packed_factors.h"

#include <algorithm>
#include <unordered_set>

#include "replayer/planner/analysis/writes.h"
#include "replayer/runtime/cpu/kernels/products/product_kernel.h"

namespace steptape::replayer::cpu {
namespace {

/// Packing takes about as long as a product of eight rows: where a product is faster than BLAS only
/// with a factor that is packed already, so many have to read it.
constexpr std::size_t kFewestReaders = 4;

/// Products with one second factor that nobody writes from the first of them to the last.
struct Group {
  const c10::StorageImpl* storage;
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

}  // namespace

void share_packed_factors(const Program& program, const Memory& memory, std::vector<Call>& calls) {
  const trace::Recording& recording = *program.recording;
  std::vector<Group> open;
  for (Call& call : calls) {
    std::unordered_set<const c10::StorageImpl*> written;
    for (const trace::BufferId id : written_by(recording, recording.ops[call.op])) {
      written.insert(memory.storage(id));
    }
    for (const trace::TensorId id : call.placed) {
      written.insert(memory.storage(recording.tensors[id].buffer));
    }
    std::erase_if(open, [&](const Group& group) {
      if (!written.contains(group.storage)) return false;
      group.end();
      return true;
    });
    auto* product = dynamic_cast<ProductKernel*>(call.kernel.get());
    if (product == nullptr || product->small() == nullptr) continue;
    const SmallProduct& small = *product->small();
    if (!small.packs()) continue;
    const auto group = std::ranges::find_if(
        open, [&](const Group& other) { return other.takes(small, call.is_once); });
    if (group != open.end()) {
      group->products.push_back(product);
    } else {
      open.push_back({small.factor(), call.is_once, {product}});
    }
  }
  for (const Group& group : open) group.end();
}

}  // namespace steptape::replayer::cpu
