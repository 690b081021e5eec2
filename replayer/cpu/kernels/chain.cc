#include "replayer/cpu/kernels/chain.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

namespace steptape::replayer::cpu {
namespace {

/// Five tensors of so many float32 elements are in a cache of 32 KiB together.
constexpr std::int64_t kStretch = 1024;

/// Ops over the same elements, in order.
struct Link {
  std::int64_t count = 0;
  std::vector<const ElementOp*> ops;
};

class Chain final : public Kernel {
 public:
  explicit Chain(std::vector<Link> links) : links_(std::move(links)) {}

  void run() override {
    for (const Link& link : links_) run(link);
  }

 private:
  void run(const Link& link) {
    operands_.clear();
    for (const ElementOp* op : link.ops) operands_.push_back(op->operands());
    for (std::int64_t done = 0; done < link.count; done += kStretch) {
      const std::int64_t count = std::min(kStretch, link.count - done);
      for (std::size_t i = 0; i < link.ops.size(); ++i) {
        elements::Operands& operands = operands_[i];
        link.ops[i]->function(operands, count);
        operands.out += count;
        for (const float*& in : operands.in) in += in == nullptr ? 0 : count;
      }
    }
  }

  std::vector<Link> links_;
  std::vector<elements::Operands> operands_;  ///< of the link that runs
};

/// Bytes that an op reads or writes: at their addresses, or from the start of a storage whose
/// memory each run is given anew.
struct Use {
  std::size_t link = 0;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_write = false;
  bool is_element = true;  ///< element by element; else as a number, before it runs

  bool conflicts_with(const Use& other) const {
    return (is_write || other.is_write) && begin < other.end && other.begin < end;
  }
  /// What one op does to an element stays before what the other does to it, piece by piece.
  bool goes_with(const Use& other) const {
    return is_element && other.is_element && begin == other.begin && end == other.end;
  }
};

/// Null: memory that stays where it is. Buffers of it that do not live at the same time share
/// bytes.
using Storage = const c10::StorageImpl*;

std::pair<Storage, Use> use_of(const at::Tensor& tensor, bool is_write, bool is_element) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto start = reinterpret_cast<std::uintptr_t>(storage->data());
  const std::uintptr_t begin = start + tensor.storage_offset() * tensor.itemsize();
  const std::uintptr_t end = begin + tensor.numel() * tensor.itemsize();
  return {start == 0 ? storage : nullptr, {0, begin, end, is_write, is_element}};
}

/// Sorts ops into links.
class Linking {
 public:
  void add(const ElementOp& op) {
    std::vector<std::pair<Storage, Use>> uses = uses_of(op);
    std::vector<std::size_t> met;
    if (!meets(uses, op.count, met)) {
      settle();
      met.clear();
    }
    const std::size_t link = join(met, op.count);
    open_[link].ops.push_back({next_++, &op});
    for (auto& [storage, use] : uses) {
      use.link = link;
      uses_[storage].push_back(use);
    }
  }

  std::vector<Link> done() {
    settle();
    return std::move(done_);
  }

 private:
  struct Open {
    std::int64_t count = 0;
    std::vector<std::pair<std::size_t, const ElementOp*>> ops;  ///< with their places in the order
    std::size_t joined;  ///< the link that has its ops now; itself
  };

  static std::vector<std::pair<Storage, Use>> uses_of(const ElementOp& op) {
    std::vector<std::pair<Storage, Use>> uses;
    const auto put = [&](const at::Tensor& tensor, bool is_write, bool is_element) {
      if (tensor.defined()) uses.push_back(use_of(tensor, is_write, is_element));
    };
    put(op.out, true, true);
    for (const at::Tensor& in : op.in) put(in, false, true);
    for (const ElementNumber& number : op.numbers) put(number.tensor(), false, false);
    return uses;
  }

  std::size_t find(std::size_t link) const {
    while (open_[link].joined != link) link = open_[link].joined;
    return link;
  }

  /// The links whose elements these uses touch. False where not element by element.
  bool meets(const std::vector<std::pair<Storage, Use>>& uses, std::int64_t count,
             std::vector<std::size_t>& met) const {
    for (const auto& [storage, use] : uses) {
      const auto others = uses_.find(storage);
      if (others == uses_.end()) continue;
      for (const Use& other : others->second) {
        if (!use.conflicts_with(other)) continue;
        const std::size_t link = find(other.link);
        if (!use.goes_with(other) || open_[link].count != count) return false;
        if (std::ranges::find(met, link) == met.end()) met.push_back(link);
      }
    }
    return true;
  }

  std::size_t join(const std::vector<std::size_t>& met, std::int64_t count) {
    if (met.empty()) {
      open_.push_back({count, {}, open_.size()});
      return open_.size() - 1;
    }
    const std::size_t first = std::ranges::min(met);
    for (const std::size_t link : met) {
      if (link == first) continue;
      auto& ops = open_[first].ops;
      const auto middle = static_cast<std::ptrdiff_t>(ops.size());
      std::ranges::move(open_[link].ops, std::back_inserter(ops));
      std::ranges::inplace_merge(ops, ops.begin() + middle);
      open_[link] = {count, {}, first};
    }
    return first;
  }

  /// What comes next stands behind all that came.
  void settle() {
    for (const Open& open : open_) {
      if (open.ops.empty()) continue;
      Link link{open.count, {}};
      for (const auto& [place, op] : open.ops) link.ops.push_back(op);
      done_.push_back(std::move(link));
    }
    open_.clear();
    uses_.clear();
  }

  std::vector<Open> open_;
  std::unordered_map<Storage, std::vector<Use>> uses_;
  std::vector<Link> done_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> chain(std::span<const ElementwiseKernel* const> kernels) {
  Linking linking;
  for (const ElementwiseKernel* kernel : kernels) {
    for (const ElementOp& op : kernel->ops()) linking.add(op);
  }
  return std::make_unique<Chain>(linking.done());
}

}  // namespace steptape::replayer::cpu
