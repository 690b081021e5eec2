#include "replayer/runtime/cuda/plan_in_use.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "guards/mismatch.h"
#include "replayer/runtime/cuda/graph.h"
#include "trace/refusals.h"

namespace steptape::replayer::cuda {
namespace {

/// Ops that fit into no graph, before the plan is given up where another one cannot be captured.
constexpr std::size_t kMostKeptOut = 64;

/// Captures for an op whose numbers leave what was captured, before it is kept out of graphs.
constexpr int kMostObjections = 4;

/// Gives a group the numbers that its ops have now, as far as they are known. That they no longer
/// have the same, where that is so.
std::optional<KeptOut> parted(GroupedCall& group) {
  if (group.take_numbers()) return std::nullopt;
  return KeptOut{group.call().op, kOtherNumbers};
}

}  // namespace

PlanInUse::PlanInUse(std::shared_ptr<const trace::Recording> recording, GeneratorOf generator)
    : recording_(std::move(recording)), generator_(std::move(generator)) {
  plan_again();
}

void PlanInUse::give_up_on(KeptOut op) {
  if (exceptions_.kept_out.size() >= kMostKeptOut) {
    throw Error(ErrorCode::kUnsupported,
                "no graphs could be captured: " + words_of(*plan_, op.op, op.why));
  }
  keep_out(std::move(op));
}

void PlanInUse::keep_out(KeptOut op) {
  if (const GroupedCall* group = plan_->group_with(op.op)) {
    leave_alone(*group);
  } else {
    exceptions_.kept_out.push_back(std::move(op));
  }
  plan_again();
}

void PlanInUse::leave_alone(const GroupedCall& group) {
  exceptions_.alone.insert(exceptions_.alone.end(), group.ops().begin(), group.ops().end());
}

void PlanInUse::plan_again() {
  auto next = std::make_unique<DevicePlan>(recording_, generator_, exceptions_);
  captured_ = {};
  kept_out_next_.reset();
  transfers_.reset();
  plan_ = std::move(next);
  transfers_.emplace(*plan_);
}

bool PlanInUse::set_apart(trace::Index op) {
  const auto is_here = [op](const auto& ops) { return std::ranges::find(ops, op) != ops.end(); };
  const auto segment = std::ranges::find_if(plan_->segments, is_here, &Segment::ops);
  if (segment == plan_->segments.end() || plan_->call_of(op).is_once) return false;
  if (segment->kind == SegmentKind::kGraph) {
    exceptions_.kept_out.push_back({op, "it leaves other bits each time it runs"});
    plan_again();
  }
  return true;
}

bool PlanInUse::ungroup() {
  if (plan_->groups.empty()) return false;
  for (const GroupedCall& group : plan_->groups) leave_alone(group);
  plan_again();
  return true;
}

void PlanInUse::begin() {
  if (kept_out_next_) keep_out(*std::exchange(kept_out_next_, std::nullopt));
}

std::optional<KeptOut> PlanInUse::parted_group() {
  for (GroupedCall& group : plan_->groups) {
    if (auto found = parted(group)) return found;
  }
  return std::nullopt;
}

std::string PlanInUse::object_to_numbers() {
  if (auto found = parted_group()) {
    keep_out(*std::move(found));
    return kOtherNumbers;
  }
  auto found = objection();
  if (!found) return {};
  std::string why = found->why;
  if (++objections_[found->op] > kMostObjections) keep_out(*std::move(found));
  return why;
}

bool PlanInUse::would_object_to_numbers() { return parted_group() || objection(); }

std::optional<KeptOut> PlanInUse::objection() const {
  for (const Captured::Segment& captured_segment : captured_.segments) {
    if (!captured_segment.graph) continue;
    if (auto found = captured_segment.updates.objection()) return found;
  }
  return std::nullopt;
}

void PlanInUse::check_numbers(std::size_t segment) {
  std::optional<KeptOut> found;
  for (const trace::Index group : plan_->groups_in[segment]) {
    found = parted(plan_->groups[group]);
    if (!found) continue;
    kept_out_next_ = found;
    break;
  }
  if (!found) found = captured_.segments[segment].updates.objection();
  if (!found) return;
  throw AssumptionViolated(
      RefusalCode::kScalarVaries,
      guards::failed(GuardKind::kPredicate, found->why, "a number as captured", "another"));
}

std::string words_of(const DevicePlan& plan, trace::Index op, const std::string& why) {
  const Refusal at = trace::refusal_at(plan.recording(), op, RefusalCode::kUnreplayableOp, "");
  std::string where;
  for (const std::string& text : {at.module, at.place}) {
    if (!text.empty()) where += (where.empty() ? "" : ", ") + text;
  }
  return name_of(plan.call_of(op)) + (where.empty() ? "" : " (" + where + ")") + ": " + why;
}

PlanStats stats_of(const DevicePlan& plan, const Captured& captured, const StaticMemory& statics,
                   Gradients gradients, DeviceStats told) {
  PlanStats stats;
  stats.ops = plan.recording().ops.size();
  stats.calls = plan.calls.calls.size();
  stats.stages = plan.segments.size();
  stats.device = std::move(told);
  for (const Segment& segment : plan.segments) {
    if (segment.kind == SegmentKind::kAhead) stats.device.ahead += segment.ops.size();
    if (segment.kind != SegmentKind::kBetween) continue;
    for (const trace::Index op : segment.ops) {
      stats.device.between.push_back(words_of(plan, op, segment.why));
    }
  }
  stats.device.groups = plan.groups.size();
  for (const GroupedCall& group : plan.groups) stats.device.grouped += group.ops().size();
  for (const Captured::Segment& captured_segment : captured.segments) {
    stats.device.updated += captured_segment.updates.kernels();
  }
  stats.device.static_bytes = statics.static_bytes();
  stats.device.copies = statics.copies();
  std::ranges::move(copies_out(plan.recording(), gradients),
                    std::back_inserter(stats.device.copies));
  return stats;
}

namespace {

/// Transfers under way: as many steps as the host may be ahead by them.
constexpr std::size_t kSlots = 4;

/// Operators that copy element by element, with the argument that they copy from.
struct Copier {
  std::string_view name;
  std::size_t from;
};
constexpr std::array kCopiers = {Copier{"aten::_to_copy", 0}, Copier{"aten::copy_", 1}};

class EventFence final : public Fence {
 public:
  void record() override { event_.record(c10::cuda::getCurrentCUDAStream()); }
  bool is_done() override { return event_.query(); }
  void wait() override { event_.synchronize(); }

 private:
  at::cuda::CUDAEvent event_;
};

class PinnedMemory final : public RingMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "allocating pinned memory");
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory) noexcept override {
    if (cudaFreeHost(memory) != cudaSuccess) cudaGetLastError();
  }
  std::unique_ptr<Fence> make_fence() override { return std::make_unique<EventFence>(); }
};

/// Whether its elements lie side by side, so that its bytes are one stretch.
bool is_dense(const trace::Tensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t d = tensor.sizes.size(); d-- > 0;) {
    if (tensor.sizes[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return !tensor.conj && !tensor.neg;
}

}  // namespace

bool is_pinned(const void* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

HostTransfers::HostTransfers(const DevicePlan& plan)
    : plan_(plan), memory_(std::make_unique<PinnedMemory>()), ring_(*memory_, kSlots) {
  for (const Segment& segment : plan.segments) {
    if (segment.kind != SegmentKind::kAhead) continue;
    for (const trace::Index op : segment.ops) {
      if (const auto transfer = transfer_of(plan, plan.call_of(op))) {
        transfers_.emplace(op, *transfer);
      }
    }
  }
}

std::optional<HostTransfers::Transfer> HostTransfers::transfer_of(const DevicePlan& plan,
                                                                  const Call& call) {
  const auto copier = std::ranges::find(kCopiers, call.callee.schema().name(), &Copier::name);
  if (copier == kCopiers.end()) return std::nullopt;
  const trace::Recording& recording = plan.recording();
  const trace::Op& op = recording.ops[call.op];
  const auto* from = std::get_if<trace::TensorRef>(&op.inputs[copier->from].data);
  const auto* to = std::get_if<trace::TensorRef>(&op.outputs[0].data);
  if (from == nullptr || to == nullptr) return std::nullopt;
  const trace::Tensor& source = recording.tensors[from->id];
  const trace::Tensor& target = recording.tensors[to->id];
  const auto kind_of = [&](const trace::Tensor& tensor) {
    return recording.buffers[tensor.buffer].device.kind;
  };
  const Placement placement = plan.program.buffers[target.buffer].placement;
  const bool is_there = placement == Placement::kStaging || placement == Placement::kBound;
  const bool is_plain = kind_of(source) == trace::DeviceKind::kCpu &&
                        kind_of(target) == trace::DeviceKind::kCuda &&
                        source.dtype == target.dtype && source.sizes == target.sizes &&
                        is_dense(source) && is_dense(target) && is_there;
  if (!is_plain) return std::nullopt;
  const auto bytes = static_cast<std::size_t>(source.numel()) * trace::bytes_of(source.dtype);
  return Transfer{from->id, to->id, bytes};
}

bool HostTransfers::run(const Call& call) {
  const auto found = transfers_.find(call.op);
  if (found == transfers_.end()) return false;
  const Transfer& transfer = found->second;
  if (transfer.bytes == 0) return true;
  const void* source = plan_.memory.tensor(transfer.from).const_data_ptr();
  if (is_pinned(source)) return false;
  std::byte* pinned = ring_.take(transfer.bytes);
  std::memcpy(pinned, source, transfer.bytes);
  check(cudaMemcpyAsync(plan_.memory.tensor(transfer.to).mutable_data_ptr(), pinned, transfer.bytes,
                        cudaMemcpyHostToDevice, c10::cuda::getCurrentCUDAStream()),
        "bringing bytes of the host");
  ring_.done();
  return true;
}

}  // namespace steptape::replayer::cuda
