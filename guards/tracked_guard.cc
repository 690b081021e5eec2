#include "guards/tracked_guard.h"

#include <unordered_map>

#include "guards/mismatch.h"
#include "live/fields.h"
#include "live/tensors.h"
#include "steptape/error.h"

namespace steptape::guards {
namespace {

TensorFacts::Weak weakly(const at::Tensor& tensor) {
  return TensorFacts::Weak(tensor.getIntrusivePtr());
}

/// A handle that counts for nothing, of a tensor that is alive while it is looked at.
class Borrowed {
 public:
  explicit Borrowed(c10::TensorImpl* impl)
      : tensor_(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(impl)) {}
  ~Borrowed() { tensor_.unsafeReleaseTensorImpl(); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  const at::Tensor& tensor() const { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace

TrackedGuard::TrackedGuard(const trace::Recording& recording,
                           const std::vector<std::int64_t>& position,
                           const std::vector<trace::BufferId>& written,
                           const live::Snapshot& snapshot) {
  if (recording.tracked.size() != snapshot.tensors.size()) {
    throw Error(ErrorCode::kInternal,
                "the recording tracks " + std::to_string(recording.tracked.size()) +
                    " tensors, the program " + std::to_string(snapshot.tensors.size()));
  }
  on_buffer_.assign(recording.buffers.size(), -1);
  std::vector<bool> is_written(recording.buffers.size());
  for (const trace::BufferId buffer : written) is_written[buffer] = true;
  for (std::size_t i = 0; i < recording.tracked.size(); ++i) {
    const trace::Tracked& tracked = recording.tracked[i];
    if (tracked.path != snapshot.tensors[i].path) {
      throw Error(ErrorCode::kInternal, "tracked tensor " + std::to_string(i) + " was " +
                                            tracked.path + " and is " + snapshot.tensors[i].path);
    }
    Watched watched = watch(tracked, snapshot.tensors[i]);
    if (tracked.tensor != trace::kNoTensor) {
      watched.expected.geometry = &recording.tensors[tracked.tensor];
      const trace::BufferId buffer = watched.expected.geometry->buffer;
      watched.expected.buffer = &recording.buffers[buffer];
      watched.expected.position = position[buffer];
      watched.expected.is_written = is_written[buffer];
      if (on_buffer_[buffer] < 0) on_buffer_[buffer] = static_cast<std::int64_t>(i);
    }
    if (!watched.is_gradient()) {
      parameters_.emplace(watched.path, i);
      by_tensor_.try_emplace(watched.tensor._unsafe_get_target(), i);
    }
    watched_.push_back(std::move(watched));
  }
  pack(snapshot);
}

TrackedGuard::Watched TrackedGuard::watch(const trace::Tracked& tracked,
                                          const live::TensorAt& at) const {
  Watched watched{tracked.path, weakly(at.tensor), {}};
  watched.expected.is_gradient = tracked.role == trace::Role::kGradient;
  watched.expected.requires_grad = tracked.requires_grad;
  if (watched.is_gradient()) {
    constexpr std::size_t kSuffix = sizeof(".grad") - 1;
    const auto parameter = position_of(tracked.path.substr(0, tracked.path.size() - kSuffix));
    watched.tensor = watched_[parameter].tensor;
  }
  const c10::TensorImpl& owner = *watched.tensor._unsafe_get_target();
  watched.expected.hooks = live::hooks_of(owner);
  watched.expected.gradient_type = live::gradient_type_of(live::autograd_meta_of(owner));
  return watched;
}

void TrackedGuard::pack(const live::Snapshot& snapshot) {
  std::unordered_map<const void*, std::size_t> gradients;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].is_gradient()) gradients.emplace(watched_[i].tensor._unsafe_get_target(), i);
  }
  const auto add = [&](std::size_t i) {
    order_.push_back(i);
    facts_.add(watched_[i].tensor, watched_[i].expected, snapshot.tensors[i].tensor);
  };
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].is_gradient()) continue;
    add(i);
    const auto gradient = gradients.find(watched_[i].tensor._unsafe_get_target());
    if (gradient != gradients.end()) add(gradient->second);
  }
}

Verdict TrackedGuard::check(std::span<void*> memory) const {
  std::size_t renewed = facts_.size();
  for (std::size_t k = 0; (k = facts_.first_broken(k, memory)) < facts_.size();) {
    if (Verdict verdict = check_one(watched_[order_[k]], memory); !verdict) return verdict;
    if (k == renewed) {
      ++k;
      continue;
    }
    facts_.renew(k, tensor_at(order_[k]));
    renewed = k;
  }
  return {};
}

Verdict TrackedGuard::check_unplaced(std::span<void*> memory) const {
  for (const Watched& watched : watched_) {
    const Verdict verdict = check_one(watched, memory);
    const bool is_placing = verdict.kind == GuardKind::kAlignment ||
                            (verdict.kind == GuardKind::kPresence && watched.is_gradient());
    if (!verdict && !is_placing) return verdict;
  }
  return {};
}

std::string TrackedGuard::moved() const {
  return facts_.moved() < 0 ? "" : watched_[order_[static_cast<std::size_t>(facts_.moved())]].path;
}

Verdict TrackedGuard::check_one(const Watched& watched, std::span<void*> memory) {
  const TensorFacts::Expectation& expected = watched.expected;
  if (watched.tensor.use_count() == 0) {
    return failed(GuardKind::kAlive, watched.path, "alive", "freed");
  }
  const Borrowed owner(watched.tensor._unsafe_get_target());
  const at::Tensor& tensor = watched.is_gradient() ? owner.tensor().grad() : owner.tensor();
  if (tensor.defined() != (expected.geometry != nullptr)) {
    return failed(GuardKind::kPresence, watched.path, tensor.defined() ? "None" : "defined",
                  tensor.defined() ? "defined" : "None");
  }
  if (live::gradient_type_of(owner.tensor()) != expected.gradient_type) {
    return failed(GuardKind::kRequiresGrad, watched.path + ".grad_dtype", "as it was recorded",
                  "another");
  }
  if (Verdict verdict = hooks_mismatch(watched.path, expected.hooks, owner.tensor()); !verdict) {
    return verdict;
  }
  if (expected.geometry == nullptr) return {};
  const auto dtype = live::scalar_type_of(expected.geometry->dtype);
  if (!has_geometry(tensor, *expected.geometry, dtype) || !is_on(tensor, expected.buffer->device)) {
    return geometry_mismatch(watched.path, *expected.geometry, expected.buffer->device, tensor);
  }
  if (Verdict verdict = offset_mismatch(watched.path, *expected.geometry, tensor); !verdict) {
    return verdict;
  }
  if (tensor.requires_grad() != expected.requires_grad) {
    return failed_flag(GuardKind::kRequiresGrad, watched.path + ".requires_grad",
                       expected.requires_grad);
  }
  return expected.position < 0 ? Verdict() : check_memory(watched, tensor, memory);
}

Verdict TrackedGuard::check_memory(const Watched& watched, const at::Tensor& tensor,
                                   std::span<void*> memory) {
  const trace::Buffer& buffer = *watched.expected.buffer;
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  auto* address = const_cast<void*>(storage->data());
  if (Verdict verdict = bytes_mismatch(watched.path, buffer, *storage); !verdict) return verdict;
  if (watched.expected.is_written && live::is_lazily_shared(*storage)) {
    return failed(GuardKind::kMemory, watched.path, "memory of its own", "that of a lazy clone");
  }
  void*& slot = memory[static_cast<std::size_t>(watched.expected.position)];
  if (slot != nullptr && slot != address && buffer.bytes != 0) {
    return failed(GuardKind::kMemory, watched.path, "in one memory with " + buffer.path,
                  "in memory of its own");
  }
  slot = address;
  return alignment_mismatch(watched.path, buffer, address);
}

std::string_view TrackedGuard::path_of(const at::Tensor& tensor) const {
  const auto found = by_tensor_.find(tensor.unsafeGetTensorImpl());
  return found == by_tensor_.end() ? std::string_view() : watched_[found->second].path;
}

std::size_t TrackedGuard::position_of(const std::string& path) const {
  const auto found = parameters_.find(path);
  if (found != parameters_.end()) return found->second;
  throw Error(ErrorCode::kInternal, "no tracked tensor has the path " + path);
}

}  // namespace steptape::guards
