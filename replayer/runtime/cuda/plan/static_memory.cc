#include "replayer/runtime/cuda/plan/static_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "replayer/planner/analysis/lifetimes.h"
#include "steptape/error.h"

namespace steptape::replayer::cuda {
namespace {

constexpr std::uint32_t kCallsUntilStill = 3;
/// A capture of its own must pay for itself by copies that are not made.
constexpr std::uint32_t kCallsUntilWorthACapture = 16;

bool is_on_device(const trace::Buffer& buffer) {
  return buffer.device.kind == trace::DeviceKind::kCuda;
}

/// Buffers that an op names: a gradient that the step replaces is bound, and nothing looks at it.
std::vector<bool> used_by_ops(const trace::Recording& recording) {
  std::vector<bool> used(recording.buffers.size(), false);
  for (const trace::Op& op : recording.ops) {
    for_each_tensor_of(op, [&](trace::TensorId id) { used[recording.tensors[id].buffer] = true; });
  }
  return used;
}

}  // namespace

StaticMemory::StaticMemory(const trace::Recording& recording,
                           std::span<const trace::BufferId> bound,
                           std::span<const std::size_t> written) {
  const std::vector<bool> used = used_by_ops(recording);
  for (const trace::BufferId id : bound) {
    const trace::Buffer& buffer = recording.buffers[id];
    Bound& entry = buffers_.emplace_back();
    entry.path = buffer.path;
    entry.bytes = buffer.bytes;
    entry.is_input = buffer.role == trace::Role::kInput;
    entry.is_gradient = buffer.role == trace::Role::kGradient;
    if (buffer.bytes == 0 || !is_on_device(buffer) || !used[id]) {
      entry.hold = Hold::kNone;
    } else if (entry.is_input) {
      entry.hold = Hold::kCopiedIn;
    }
  }
  for (const std::size_t position : written) buffers_.at(position).is_written = true;
}

Decision StaticMemory::decide(std::span<void* const> addresses) {
  look_at(addresses);
  if (is_captured_) {
    why_ = moved(addresses);
    if (why_.empty()) why_ = lies_still();
    is_captured_ = why_.empty();
  }
  Decision decision;
  if (!is_captured_) {
    settle_inputs();
    decision.capture = true;
    decision.why = why_;
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].hold != Hold::kCopiedIn) continue;
    decision.copy_in.push_back(i);
    if (buffers_[i].is_written) decision.copy_back.push_back(i);
  }
  return decision;
}

void StaticMemory::captured(std::span<void* const> addresses) {
  if (addresses.size() != buffers_.size()) {
    throw Error(ErrorCode::kInternal, "addresses of other buffers than the bound ones");
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].captured = addresses[i];
  is_captured_ = true;
}

void StaticMemory::look_at(std::span<void* const> addresses) {
  if (addresses.size() != buffers_.size()) {
    throw Error(ErrorCode::kInternal, "addresses of other buffers than the bound ones");
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    Bound& buffer = buffers_[i];
    if (!buffer.is_input) continue;
    if (buffer.calls_at_last == 0 || buffer.last != addresses[i]) {
      buffer.has_wandered |= buffer.calls_at_last != 0;
      buffer.last = addresses[i];
      buffer.calls_at_last = 0;
    }
    buffer.calls_at_last = std::min(buffer.calls_at_last + 1, kCallsUntilWorthACapture);
  }
}

std::string StaticMemory::moved(std::span<void* const> addresses) {
  const Bound* first = nullptr;
  std::size_t count = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    Bound& buffer = buffers_[i];
    if (buffer.hold != Hold::kByAddress || buffer.captured == addresses[i]) continue;
    if (buffer.is_input || buffer.is_gradient) buffer.has_moved = true;
    if (first == nullptr) first = &buffer;
    ++count;
  }
  if (count == 0) return {};
  return count == 1 ? first->path + " moved"
                    : fmt::format("{} and {} more moved", first->path, count - 1);
}

/// An input that is copied in, though it has never moved.
std::string StaticMemory::lies_still() const {
  for (const Bound& buffer : buffers_) {
    if (!buffer.is_input || buffer.hold != Hold::kCopiedIn) continue;
    const bool is_still = !buffer.has_moved && !buffer.has_wandered;
    if (is_still && buffer.calls_at_last == kCallsUntilWorthACapture) {
      return buffer.path + " lies still";
    }
  }
  return {};
}

void StaticMemory::settle_inputs() {
  for (Bound& buffer : buffers_) {
    if (buffer.hold == Hold::kNone) continue;
    if (buffer.is_gradient && buffer.has_moved) buffer.hold = Hold::kCopiedIn;
    if (!buffer.is_input) continue;
    const bool is_still = !buffer.has_moved && buffer.calls_at_last >= kCallsUntilStill;
    buffer.hold = is_still ? Hold::kByAddress : Hold::kCopiedIn;
  }
}

std::vector<TensorCopy> StaticMemory::copies() const {
  std::vector<TensorCopy> copies;
  for (const Bound& buffer : buffers_) {
    if (buffer.hold != Hold::kCopiedIn) continue;
    const std::string_view why =
        buffer.has_moved      ? "it lay at another address than in the captured call"
        : buffer.has_wandered ? "it does not lie at one address in each call"
                              : "too few calls had been seen when the graph was captured to tell "
                                "whether it stays where it is";
    copies.push_back({buffer.path, buffer.bytes, std::string(why),
                      buffer.is_gradient
                          ? "Options::static_gradients, or zero_grad(set_to_none=false)"
                          : "pass the same tensor, filled by copy_, in each call"});
    if (!buffer.is_written) continue;
    copies.push_back(
        {buffer.path, buffer.bytes,
         "the step writes it, and so it is copied back from where it was copied to",
         buffer.is_gradient
             ? "Options::static_gradients, or zero_grad(set_to_none=false)"
             : "pass the same tensor, filled by copy_, in each call, or do not write it"});
  }
  return copies;
}

std::uint64_t StaticMemory::static_bytes() const {
  std::uint64_t bytes = 0;
  for (const Bound& buffer : buffers_) {
    if (buffer.hold == Hold::kCopiedIn) bytes += buffer.bytes;
  }
  return bytes;
}

std::vector<TensorCopy> copies_out(const trace::Recording& recording, Gradients gradients) {
  std::vector<TensorCopy> copies;
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  std::vector<bool> is_counted(recording.buffers.size(), false);
  const auto count = [&](trace::TensorId id, std::string path, std::string why,
                         std::string remedy) {
    if (id == trace::kNoTensor) return;
    const trace::BufferId at = recording.tensors[id].buffer;
    const trace::Buffer& buffer = recording.buffers[at];
    if (!lifetimes[at].made_inside || !is_on_device(buffer) || buffer.bytes == 0) return;
    if (is_counted[at]) return;
    is_counted[at] = true;
    copies.push_back({std::move(path), buffer.bytes, std::move(why), std::move(remedy)});
  };
  const std::size_t returned = recording.results.size() - recording.observed;
  for (std::size_t i = 0; i < recording.results.size(); ++i) {
    count(recording.results[i], fmt::format("results[{}]", i),
          "a result is the user's own: it is copied out of the graph's memory",
          i < returned ? "return fewer or smaller tensors from the step, such as a loss"
                       : "observe fewer or smaller tensors");
  }
  for (const trace::ExitGradient& gradient : recording.exit_gradients) {
    if (gradient.is_memory) {
      count(gradient.tensor, gradient.path(),
            "the step gives it other memory: it is copied out of the graph's",
            "write it in place: p.data.copy_(value)");
    } else if (gradients != Gradients::kStatic) {
      count(gradient.tensor, gradient.path(),
            "a gradient is the user's own: it is copied out of the graph's memory",
            "Options::static_gradients");
    }
  }
  return copies;
}

}  // namespace steptape::replayer::cuda
