#include "replayer/runtime/cpu/stages.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "live/values.h"
#include "replayer/runtime/cpu/kernels/elementwise.h"
#include "replayer/runtime/cpu/kernels/preparation.h"
#include "replayer/runtime/cpu/kernels/products/small_product.h"

namespace steptape::replayer::cpu {
namespace {

/// What an op in place writes; empty for one that makes its results.
std::vector<at::Tensor> written_in_place(const Call& call) {
  const c10::FunctionSchema& schema = call.callee.schema();
  if (schema.arguments().empty() || call.arguments.empty()) return {};
  const auto* alias = schema.arguments()[0].alias_info();
  if (alias == nullptr || !alias->isWrite()) return {};
  const c10::IValue& self = call.arguments[0];
  if (self.isTensor()) return {self.toTensor()};
  return self.isTensorList() ? self.toTensorVector() : std::vector<at::Tensor>();
}

/// What the program gave it to write, `out=`.
std::vector<at::Tensor> written_as_given(const Call& call) {
  std::vector<at::Tensor> written;
  const auto& arguments = call.callee.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_out()) continue;
    live::for_each_tensor(call.arguments[i],
                          [&](const at::Tensor& tensor) { written.push_back(tensor); });
  }
  return written;
}

PlannedMemory planned_memory(const Program& program, const Memory& memory,
                             const std::vector<trace::BufferId>& refilled) {
  const trace::Recording& recording = *program.recording;
  PlannedMemory planned;
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    const trace::Buffer& buffer = recording.buffers[id];
    const Placement placement = program.buffers[id].placement;
    planned.address_mod_64.emplace(memory.storage(id), buffer.address_mod_64);
    if (placement == Placement::kBound && buffer.role == trace::Role::kInput) {
      planned.moving.insert(memory.storage(id));
    }
    if (placement == Placement::kConstant && buffer.bytes != 0) {
      planned.literals.insert(memory.storage(id));
    }
    if (placement == Placement::kConstant || placement == Placement::kArena) {
      planned.fixed.insert(memory.storage(id));
    }
  }
  // constants that a formula or an op writes
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op == trace::kNone && site.buffer < program.buffers.size()) {
      planned.literals.erase(memory.storage(site.buffer));
    }
  }
  for (const trace::BufferId id : refilled) planned.literals.erase(memory.storage(id));
  return planned;
}

/// Each for itself.
void make_kernels(const Program& program, const Memory& memory,
                  const std::vector<trace::BufferId>& refilled, std::vector<Call>& calls) {
  const trace::Recording& recording = *program.recording;
  const PlannedMemory planned = planned_memory(program, memory, refilled);
  std::vector<std::vector<trace::Index>> varying(recording.ops.size());
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op < varying.size()) varying[site.op].push_back(site.argument);
  }
  for (Call& call : calls) {
    if (call.adopts || call.read != trace::kNone) {
      call.no_kernel = call.adopts ? "its results are the user's" : "it gives the host a value";
      continue;
    }
    KernelSite site{call, std::vector<bool>(call.arguments.size(), false), {}, planned};
    for (const trace::Index argument : varying[call.op]) site.varies.at(argument) = true;
    for (const trace::TensorId id : call.placed) site.results.push_back(memory.tensor(id));
    if (call.placed.empty()) site.results = written_in_place(call);
    const bool is_given = site.results.empty();
    if (is_given) site.results = written_as_given(call);
    Preparation made = prepare(site);
    // others lay out their results themselves
    if (is_given && dynamic_cast<const ElementwiseKernel*>(made.kernel.get()) == nullptr) {
      made = Preparation::refused("results that the program gave it");
    }
    call.kernel = std::move(made.kernel);
    call.no_kernel = made.reason;
  }
}

}  // namespace

void prepare_kernels(const Program& program, const Memory& memory,
                     const std::vector<trace::BufferId>& refilled, std::vector<Call>& calls) {
  make_kernels(program, memory, refilled, calls);
  share_packed_factors(program, memory, calls);
}

void prepare_elementwise_kernels(const Program& program, const Memory& memory,
                                 const std::vector<trace::BufferId>& refilled,
                                 std::vector<Call>& calls) {
  make_kernels(program, memory, refilled, calls);
  for (Call& call : calls) {
    if (dynamic_cast<const ElementwiseKernel*>(call.kernel.get()) == nullptr) call.kernel.reset();
  }
}

namespace {

/// Finds what passes between calls.
class IntermediateUses {
 public:
  IntermediateUses(const Program& program, const Memory& memory, const std::vector<Call>& calls) {
    for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
      const BufferPlan& plan = program.buffers[id];
      if (plan.placement == Placement::kArena && !plan.stays) users_[memory.storage(id)];
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto see = [&](const at::Tensor& tensor) { see_use(tensor, i); };
      for (const c10::IValue& argument : calls[i].arguments) live::for_each_tensor(argument, see);
      for (const trace::TensorId id : calls[i].placed) see(memory.tensor(id));
    }
  }

  /// Planned memory that calls of [first, end) alone use.
  Intermediates within(std::size_t first, std::size_t end) const {
    Intermediates intermediates;
    for (auto at = by_first_.lower_bound(first); at != by_first_.end() && at->first < end; ++at) {
      if (users_.at(at->second).last < end) intermediates.insert(at->second);
    }
    return intermediates;
  }

 private:
  struct Users {
    bool are_known = false;
    std::size_t last = 0;
  };

  void see_use(const at::Tensor& tensor, std::size_t call) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const auto found = users_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == users_.end()) return;
    Users& users = found->second;
    if (!users.are_known) by_first_.emplace(call, found->first);
    users = {true, call};
  }

  std::unordered_map<const c10::StorageImpl*, Users> users_;
  std::multimap<std::size_t, const c10::StorageImpl*> by_first_;  ///< by the first call
};

/// Kernels that follow each other and may be done in one pass.
class FusionBuilder {
 public:
  explicit FusionBuilder(const IntermediateUses& uses) : intermediate_uses_(uses) {}

  /// Not where it takes a number from a tensor that one of the others writes.
  bool can_take(const ElementwiseKernel& kernel) const {
    const auto is_written = [this](const ElementNumber& number) {
      return number.tensor().defined() &&
             written_.contains(number.tensor().storage().unsafeGetStorageImpl());
    };
    return std::ranges::none_of(kernel.ops(), [&](const ElementOp& op) {
      return std::ranges::any_of(op.numbers, is_written);
    });
  }
  void take(ElementwiseKernel& kernel) {
    kernels_.push_back(&kernel);
    for (const ElementOp& op : kernel.ops()) {
      written_.insert(op.out.storage().unsafeGetStorageImpl());
    }
  }
  /// As the stage that ends before call `end`, if there are any; begins anew.
  void end(std::size_t end, std::vector<Stage>& stages) {
    if (kernels_.size() > 1) {
      const std::size_t first = end - kernels_.size();
      stages.push_back(
          {first, kernels_.size(),
           std::make_unique<FusedGroup>(kernels_, intermediate_uses_.within(first, end))});
    } else if (!kernels_.empty()) {
      stages.push_back({end - 1});
    }
    kernels_.clear();
    written_.clear();
  }

 private:
  const IntermediateUses& intermediate_uses_;
  std::vector<ElementwiseKernel*> kernels_;
  std::unordered_set<const c10::StorageImpl*> written_;
};

}  // namespace

std::vector<Stage> stages_of(const Program& program, const Memory& memory,
                             const std::vector<Call>& calls, std::size_t border, Fusion fusion) {
  std::vector<Stage> stages;
  const IntermediateUses uses(program, memory, calls);
  FusionBuilder builder(uses);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool is_other_part = i == border || (i > 0 && calls[i].is_once != calls[i - 1].is_once);
    if (is_other_part || fusion == Fusion::kNo) builder.end(i, stages);
    if (auto* kernel = dynamic_cast<ElementwiseKernel*>(calls[i].kernel.get())) {
      if (!builder.can_take(*kernel)) builder.end(i, stages);
      builder.take(*kernel);
      continue;
    }
    builder.end(i, stages);
    stages.push_back({i});
  }
  builder.end(calls.size(), stages);
  return stages;
}

}  // namespace steptape::replayer::cpu
