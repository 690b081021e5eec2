#include "replayer/cpu/kernels/chain.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replayer/cpu/kernels/floats.h"

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
  Chain(std::span<ElementwiseKernel* const> kernels, const std::vector<Link>& links)
      : kernels_(kernels.begin(), kernels.end()) {
    for (const ElementwiseKernel* kernel : kernels) {
      std::ranges::copy(kernel->varying(), std::back_inserter(varying_));
    }
    for (const Link& link : links) {
      for (const ElementOp* op : link.ops) {
        Step step{op, place_of(op->out), {}};
        for (std::size_t i = 0; i < op->in.size(); ++i) step.in[i] = place_of(op->in[i]);
        is_written_[step.out] = true;
        steps_.push_back(step);
      }
      links_.push_back({link.count, steps_.size()});
    }
    places_.clear();
    addresses_.resize(tensors_.size());
  }

  void run() override {
    if (!are_fit(varying_)) {
      for (ElementwiseKernel* kernel : kernels_) kernel->run();
      return;
    }
    // the ops of a link share most of their tensors
    for (std::size_t i = 1; i < tensors_.size(); ++i) {
      addresses_[i] = is_written_[i] ? writable_floats_of(tensors_[i])
                                     : const_cast<float*>(floats_of(tensors_[i]));
    }
    std::size_t first = 0;
    for (const auto& [count, end] : links_) {
      run(std::span(steps_).subspan(first, end - first), count);
      first = end;
    }
  }

 private:
  /// One op, its tensors by their places in `tensors_`.
  struct Step {
    const ElementOp* op;
    std::size_t out;
    std::array<std::size_t, 3> in;
  };
  struct Part {
    std::int64_t count;
    std::size_t end;  ///< of its steps
  };

  std::size_t place_of(const at::Tensor& tensor) {
    if (!tensor.defined()) return 0;
    const auto [found, is_new] = places_.try_emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_new) {
      tensors_.push_back(tensor);
      is_written_.push_back(false);
    }
    return found->second;
  }

  elements::Operands operands_of(const Step& step) const {
    elements::Operands operands{};
    operands.out = addresses_[step.out];
    for (std::size_t i = 0; i < step.in.size(); ++i) operands.in[i] = addresses_[step.in[i]];
    step.op->put_numbers(operands);
    return operands;
  }

  void run(std::span<const Step> steps, std::int64_t whole) {
    operands_.clear();
    for (const Step& step : steps) operands_.push_back(operands_of(step));
    for (std::int64_t done = 0; done < whole; done += kStretch) {
      const std::int64_t count = std::min(kStretch, whole - done);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        elements::Operands& operands = operands_[i];
        steps[i].op->function(operands, count);
        operands.out += count;
        for (const float*& in : operands.in) in += in == nullptr ? 0 : count;
      }
    }
  }

  std::vector<ElementwiseKernel*> kernels_;
  std::vector<ElementNumber> varying_;
  std::vector<Step> steps_;
  std::vector<Part> links_;
  std::vector<at::Tensor> tensors_ = {at::Tensor()};  ///< the first stands for none
  std::vector<bool> is_written_ = {false};
  std::vector<float*> addresses_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> places_;  ///< while it is made
  std::vector<elements::Operands> operands_;                        ///< of the link that runs
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

/// What open links use of a storage. Uses of the same bytes by one link are one.
class Uses {
 public:
  void add(const Use& use) {
    longest_ = std::max(longest_, use.end - use.begin);
    for (auto [at, end] = uses_.equal_range(use.begin); at != end; ++at) {
      Use& known = at->second;
      if (known.end != use.end || known.link != use.link) continue;
      known.is_write = known.is_write || use.is_write;
      known.is_element = known.is_element && use.is_element;
      return;
    }
    uses_.emplace(use.begin, use);
  }

  /// Calls `visit` for those that conflict with `use`, until it says false.
  template <typename Visit>
  bool all_of_conflicts(const Use& use, Visit&& visit) const {
    auto at = uses_.lower_bound(use.begin - std::min(use.begin, longest_));
    for (; at != uses_.end() && at->first < use.end; ++at) {
      if (use.conflicts_with(at->second) && !visit(at->second)) return false;
    }
    return true;
  }

 private:
  std::multimap<std::uintptr_t, Use> uses_;
  std::uintptr_t longest_ = 0;
};

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
      uses_[storage].add(use);
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
    for (const auto& each : uses) {
      const Use& use = each.second;
      const auto others = uses_.find(each.first);
      if (others == uses_.end()) continue;
      const bool all_go = others->second.all_of_conflicts(use, [&](const Use& other) {
        const std::size_t link = find(other.link);
        if (!use.goes_with(other) || open_[link].count != count) return false;
        if (std::ranges::find(met, link) == met.end()) met.push_back(link);
        return true;
      });
      if (!all_go) return false;
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
  std::unordered_map<Storage, Uses> uses_;
  std::vector<Link> done_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> chain(std::span<ElementwiseKernel* const> kernels) {
  Linking linking;
  for (const ElementwiseKernel* kernel : kernels) {
    for (const ElementOp& op : kernel->ops()) linking.add(op);
  }
  return std::make_unique<Chain>(kernels, linking.done());
}

}  // namespace steptape::replayer::cpu
