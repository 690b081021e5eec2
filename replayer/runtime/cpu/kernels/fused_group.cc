#include "replayer/runtime/cpu/kernels/fused_group.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include "replayer/runtime/cpu/kernels/floats.h"

namespace steptape::replayer::cpu {
namespace {

/// Five tensors of so many float32 elements are in a cache of 32 KiB together.
constexpr std::int64_t kStretch = 1024;

std::vector<Use> uses_of(const ElementOp& op) {
  std::vector<Use> uses = {Use::of(op.out, true)};
  for (const at::Tensor& in : op.in) {
    if (in.defined()) uses.push_back(Use::of(in, false));
  }
  for (const ElementNumber& number : op.numbers) {
    if (!number.tensor().defined()) continue;
    uses.push_back(Use::of(number.tensor(), false));
    uses.back().is_element = false;
  }
  return uses;
}

}  // namespace

FusedLoop::FusedLoop(std::span<const ElementOp* const> ops, const Intermediates& intermediates)
    : count_(ops.front()->count) {
  std::unordered_map<const c10::TensorImpl*, std::size_t> places;
  const auto place_of = [&](const at::Tensor& tensor) -> std::size_t {
    if (!tensor.defined()) return 0;
    const auto [found, is_new] = places.try_emplace(tensor.unsafeGetTensorImpl(), tensors_.size());
    if (is_new) {
      tensors_.push_back(tensor);
      is_written_.push_back(false);
    }
    return found->second;
  };
  for (const ElementOp* op : ops) {
    Step step{op, place_of(op->out), {}};
    for (std::size_t i = 0; i < op->in.size(); ++i) step.in[i] = place_of(op->in[i]);
    is_written_[step.out] = true;
    numbers_.emplace_back();
    if (op->varies()) {
      varying_.push_back(steps_.size());
    } else {
      op->take_numbers(numbers_.back());
    }
    steps_.push_back(step);
  }
  give_slots(intermediates);
  addresses_.resize(tensors_.size());
  operands_.reserve(steps_.size());
}

namespace {

/// When a loop uses a storage, by its steps.
struct IntermediateUse {
  std::size_t first = 0;
  std::size_t last = 0;
  Use use;
  bool is_sound = false;  ///< written first, and always the same elements
};

}  // namespace

/// Slots are shared by storages whose time does not overlap: greedily, by their
/// first steps. An op may write what it reads for the last time, element by
/// element.
void FusedLoop::give_slots(const Intermediates& intermediates) {
  std::vector<std::pair<const c10::StorageImpl*, IntermediateUse>> uses;
  std::unordered_map<const c10::StorageImpl*, std::size_t> known;
  const auto see = [&](std::size_t step, std::size_t place, bool is_write) {
    const c10::StorageImpl* storage =
        place == 0 ? nullptr : tensors_[place].storage().unsafeGetStorageImpl();
    if (!intermediates.contains(storage)) return;
    const Use use = Use::of(tensors_[place], false);
    const auto [found, is_new] = known.try_emplace(storage, uses.size());
    if (is_new) uses.push_back({storage, {step, step, use, is_write}});
    IntermediateUse& passage = uses[found->second].second;
    passage.last = step;
    passage.is_sound &= use.begin == passage.use.begin && use.end == passage.use.end;
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (const std::size_t place : steps_[i].in) see(i, place, false);
    see(i, steps_[i].out, true);
  }
  std::vector<std::size_t> free_from;
  std::unordered_map<const c10::StorageImpl*, std::size_t> slot_of;
  for (const auto& [storage, passage] : uses) {
    if (!passage.is_sound) continue;
    const auto free = std::ranges::find_if(
        free_from, [&, first = passage.first](std::size_t from) { return from <= first; });
    slot_of[storage] = static_cast<std::size_t>(free - free_from.begin());
    if (free == free_from.end()) {
      free_from.push_back(passage.last);
    } else {
      *free = passage.last;
    }
  }
  slot_count_ = free_from.size();
  for (std::size_t i = 1; i < tensors_.size(); ++i) {
    const auto found = slot_of.find(tensors_[i].storage().unsafeGetStorageImpl());
    slots_.push_back(found == slot_of.end() ? kInMemory : found->second);
  }
}

bool FusedLoop::take_numbers() {
  return std::ranges::all_of(
      varying_, [this](std::size_t step) { return steps_[step].op->take_numbers(numbers_[step]); });
}

elements::Operands FusedLoop::operands_of(std::size_t position) const {
  const Step& step = steps_[position];
  elements::Operands operands{};
  operands.out = addresses_[step.out];
  for (std::size_t i = 0; i < step.in.size(); ++i) operands.in[i] = addresses_[step.in[i]];
  std::ranges::copy(numbers_[position], operands.number);
  return operands;
}

/// Of the thread, for all loops.
float* FusedLoop::scratch(std::size_t floats) {
  thread_local std::vector<float> memory;
  if (memory.size() < floats) memory.resize(floats);
  return memory.data();
}

void FusedLoop::run() {
  float* const slots = scratch(slot_count_ * kStretch);
  // its ops share most of their tensors
  for (std::size_t i = 1; i < tensors_.size(); ++i) {
    if (slots_[i] != kInMemory) {
      addresses_[i] = slots + slots_[i] * kStretch;
    } else if (is_written_[i]) {
      addresses_[i] = writable_floats_of(tensors_[i]);
    } else {
      addresses_[i] = const_cast<float*>(floats_of(tensors_[i]));
    }
  }
  operands_.clear();
  for (std::size_t i = 0; i < steps_.size(); ++i) operands_.push_back(operands_of(i));
  for (std::int64_t done = 0; done < count_; done += kStretch) {
    const std::int64_t count = std::min(kStretch, count_ - done);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      elements::Operands& operands = operands_[i];
      step.op->function(operands, count);
      // a slot holds the stretch that is under way
      if (slots_[step.out] == kInMemory) {
        operands.out += count;
      } else if (keeps_everything_) {
        std::copy_n(operands.out, count, writable_floats_of(tensors_[step.out]) + done);
      }
      for (std::size_t k = 0; k < step.in.size(); ++k) {
        if (step.in[k] != 0 && slots_[step.in[k]] == kInMemory) operands.in[k] += count;
      }
    }
  }
}

namespace {

/// Sorts ops into loops. An op joins the loops whose elements it goes on with; else it begins a
/// loop after all others, as it does where joining would turn an order around. Loops are in an
/// order in which they may be run; ops that conflict are in one loop, element by element, or in
/// that order.
class LoopBuilder {
 public:
  void add(const ElementOp& op) {
    std::vector<Use> uses = uses_of(op);
    const std::map<std::size_t, bool> met = loops_met(uses, op.count);
    std::vector<std::size_t> joined;
    for (const auto& [loop, goes_on] : met) {
      if (goes_on) joined.push_back(loop);
    }
    const bool may_join = !joined.empty() && may_become_one(joined, met.rbegin()->first);
    const std::size_t loop = may_join ? join(joined) : begin(op.count);
    for (const auto& [other, goes_on] : met) {
      if (find(other) != loop) open_[other].followers.push_back(loop);
    }
    open_[loop].ops.push_back({next_++, &op});
    for (Use& use : uses) {
      use.by = loop;
      Uses& known = uses_[use.storage];
      // who conflicts with them later conflicts with this, too
      if (use.is_write) known.forget_covered(use);
      known.add(use);
    }
  }

  /// `intermediates` between ops of these.
  std::vector<std::unique_ptr<FusedLoop>> done(const Intermediates& intermediates) {
    const Intermediates inside = within_one(intermediates);
    std::vector<std::unique_ptr<FusedLoop>> loops;
    for (const Open& open : open_) {
      if (open.ops.empty()) continue;
      std::vector<const ElementOp*> ops;
      for (const auto& [place, op] : open.ops) ops.push_back(op);
      loops.push_back(std::make_unique<FusedLoop>(ops, inside));
    }
    return loops;
  }

 private:
  struct Open {
    std::int64_t count = 0;
    std::vector<std::pair<std::size_t, const ElementOp*>> ops;  ///< with their places in the order
    std::size_t joined;                  ///< the loop that has its ops now; itself
    std::vector<std::size_t> followers;  ///< loops that must come after it
  };

  /// Those that one loop alone uses, and not as a number.
  Intermediates within_one(const Intermediates& intermediates) const {
    std::unordered_map<const c10::StorageImpl*, std::size_t> user;
    Intermediates inside = intermediates;
    const auto see = [&](const at::Tensor& tensor, std::size_t loop, bool is_number) {
      if (!tensor.defined()) return;
      const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      const std::size_t first = user.try_emplace(storage, loop).first->second;
      if (is_number || first != loop) inside.erase(storage);
    };
    for (std::size_t loop = 0; loop < open_.size(); ++loop) {
      for (const auto& [place, op] : open_[loop].ops) {
        see(op->out, loop, false);
        for (const at::Tensor& in : op->in) see(in, loop, false);
        for (const ElementNumber& number : op->numbers) see(number.tensor(), loop, true);
      }
    }
    return inside;
  }

  std::size_t find(std::size_t loop) const {
    while (open_[loop].joined != loop) loop = open_[loop].joined;
    return loop;
  }

  /// The loops that the op must not come before; of each, whether it goes on with its elements: it
  /// reads what the loop leaves, and whatever they share they share element by element.
  std::map<std::size_t, bool> loops_met(const std::vector<Use>& uses, std::int64_t count) const {
    std::map<std::size_t, bool> reads;
    std::map<std::size_t, bool> goes;
    for (const Use& use : uses) {
      const auto others = uses_.find(use.storage);
      if (others == uses_.end()) continue;
      others->second.for_each_conflict(use, [&](const Use& other) {
        const std::size_t loop = find(other.by);
        const bool is_by_element = use.is_element && other.is_element && use.begin == other.begin &&
                                   use.end == other.end && open_[loop].count == count;
        goes.try_emplace(loop, true).first->second &= is_by_element;
        reads[loop] |= !use.is_write;
      });
    }
    for (auto& [loop, goes_on] : goes) goes_on &= reads[loop];
    return goes;
  }

  /// Whether the loops may all be run at the place of the last of them, and what conflicts with the
  /// loops up to `behind` may, too.
  bool may_become_one(const std::vector<std::size_t>& loops, std::size_t behind) const {
    const std::size_t last = loops.back();
    if (behind > last) return false;
    return std::ranges::all_of(loops, [&](std::size_t loop) {
      return loop == last || std::ranges::all_of(open_[loop].followers, [&](std::size_t other) {
               return find(other) > last;
             });
    });
  }

  std::size_t join(const std::vector<std::size_t>& loops) {
    const std::size_t last = loops.back();
    Open& whole = open_[last];
    for (const std::size_t loop : loops) {
      if (loop == last) continue;
      Open& part = open_[loop];
      const auto middle = static_cast<std::ptrdiff_t>(whole.ops.size());
      std::ranges::move(part.ops, std::back_inserter(whole.ops));
      std::ranges::inplace_merge(whole.ops, whole.ops.begin() + middle);
      std::ranges::copy(part.followers, std::back_inserter(whole.followers));
      part.ops.clear();
      part.followers.clear();
      part.joined = last;
    }
    return last;
  }

  std::size_t begin(std::int64_t count) {
    open_.push_back({count, {}, open_.size(), {}});
    return open_.size() - 1;
  }

  std::vector<Open> open_;
  std::unordered_map<Use::Storage, Uses> uses_;
  std::size_t next_ = 0;
};

}  // namespace

FusedGroup::FusedGroup(std::span<ElementwiseKernel* const> kernels,
                       const Intermediates& intermediates)
    : kernels_(kernels.begin(), kernels.end()) {
  LoopBuilder builder;
  for (const ElementwiseKernel* kernel : kernels) {
    for (const ElementOp& op : kernel->ops()) builder.add(op);
  }
  loops_ = builder.done(intermediates);
}

void FusedGroup::run() {
  const auto is_fit = [](const auto& loop) { return loop->take_numbers(); };
  if (!std::ranges::all_of(loops_, is_fit)) {
    for (ElementwiseKernel* kernel : kernels_) kernel->run();
    return;
  }
  for (const auto& loop : loops_) loop->run();
}

void FusedGroup::keep_everything(bool keeps) {
  for (const auto& loop : loops_) loop->keep_everything(keeps);
}

}  // namespace steptape::replayer::cpu
