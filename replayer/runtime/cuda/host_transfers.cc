#include "replayer/runtime/cuda/host_transfers.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "replayer/runtime/cuda/errors.h"

namespace steptape::replayer::cuda {
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
  const bool is_there = placement == Placement::kLanding || placement == Placement::kBound;
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
