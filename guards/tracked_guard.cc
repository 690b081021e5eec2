#include "guards/tracked_guard.h"

#include <unordered_map>

#include "guards/mismatch.h"
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
                           const live::Snapshot& snapshot) {
  if (recording.tracked.size() != snapshot.tensors.size()) {
    throw Error(ErrorCode::kInternal,
                "the recording tracks " + std::to_string(recording.tracked.size()) +
                    " tensors, the program " + std::to_string(snapshot.tensors.size()));
  }
  std::unordered_map<std::string, at::Tensor> parameters;
  for (const live::TensorAt& at : snapshot.tensors) {
    if (at.role == trace::Role::kParameter) parameters.emplace(at.path, at.tensor);
  }
  for (std::size_t i = 0; i < recording.tracked.size(); ++i) {
    const trace::Tracked& tracked = recording.tracked[i];
    if (tracked.path != snapshot.tensors[i].path) {
      throw Error(ErrorCode::kInternal, "tracked tensor " + std::to_string(i) + " was " +
                                            tracked.path + " and is " + snapshot.tensors[i].path);
    }
    Watched watched{tracked.path,
                    weakly(snapshot.tensors[i].tensor),
                    tracked.role == trace::Role::kGradient,
                    nullptr,
                    nullptr,
                    at::kFloat,
                    tracked.requires_grad,
                    {},
                    -1};
    if (watched.is_gradient) {
      constexpr std::size_t kSuffix = sizeof(".grad") - 1;
      watched.tensor = weakly(parameters.at(tracked.path.substr(0, tracked.path.size() - kSuffix)));
    }
    watched.hooks = live::hooks_of(at::Tensor(watched.tensor.lock()));
    if (tracked.tensor != trace::kNoTensor) {
      watched.geometry = &recording.tensors[tracked.tensor];
      watched.buffer = &recording.buffers[watched.geometry->buffer];
      watched.dtype = live::scalar_type_of(watched.geometry->dtype);
      watched.position = position[watched.geometry->buffer];
    }
    facts_.add(watched.tensor, watched.is_gradient, watched.requires_grad, watched.hooks,
               watched.geometry, watched.buffer, watched.position);
    watched_.push_back(std::move(watched));
  }
}

Verdict TrackedGuard::check(std::span<void*> memory) const {
  for (std::size_t k = 0; (k = facts_.first_broken(k, memory)) < facts_.size(); ++k) {
    if (Verdict verdict = check_one(watched_[k], memory); !verdict) return verdict;
    facts_.renew(k, tensor_at(k));
  }
  return {};
}

Verdict TrackedGuard::check_one(const Watched& watched, std::span<void*> memory) {
  if (watched.tensor.use_count() == 0) return failed(watched.path, "alive", "freed");
  const Borrowed owner(watched.tensor._unsafe_get_target());
  const at::Tensor& tensor = watched.is_gradient ? owner.tensor().grad() : owner.tensor();
  if (tensor.defined() != (watched.geometry != nullptr)) {
    return failed(watched.path, tensor.defined() ? "None" : "defined",
                  tensor.defined() ? "defined" : "None");
  }
  if (watched.geometry == nullptr) return {};
  if (!has_geometry(tensor, *watched.geometry, watched.dtype) || !tensor.device().is_cpu()) {
    return geometry_mismatch(watched.path, *watched.geometry, watched.buffer->device, tensor);
  }
  if (tensor.storage_offset() != watched.geometry->offset) {
    return failed(watched.path + ".storage_offset", watched.geometry->offset,
                  tensor.storage_offset());
  }
  if (tensor.requires_grad() != watched.requires_grad) {
    return failed(watched.path + ".requires_grad", watched.requires_grad ? "true" : "false",
                  tensor.requires_grad() ? "true" : "false");
  }
  if (live::hooks_of(owner.tensor()) != watched.hooks) {
    return failed(watched.path + " (hooks)", "those of the recording", "others");
  }
  if (watched.position < 0) return {};
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  auto* address = const_cast<void*>(storage->data());
  if (storage->nbytes() < watched.buffer->bytes) {
    return failed(watched.path + ".storage().nbytes",
                  static_cast<std::int64_t>(watched.buffer->bytes),
                  static_cast<std::int64_t>(storage->nbytes()));
  }
  const auto remainder = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % 64);
  if (watched.buffer->bytes != 0 && remainder != watched.buffer->address_mod_64) {
    return failed(watched.path + ".data_ptr modulo 64", watched.buffer->address_mod_64, remainder);
  }
  void*& slot = memory[static_cast<std::size_t>(watched.position)];
  if (slot != nullptr && slot != address && watched.buffer->bytes != 0) {
    return failed(watched.path, "in one memory with " + watched.buffer->path,
                  "in memory of its own");
  }
  slot = address;
  return {};
}

std::int64_t TrackedGuard::position_on(trace::BufferId buffer) const {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const trace::Tensor* geometry = watched_[i].geometry;
    if (geometry != nullptr && geometry->buffer == buffer) return static_cast<std::int64_t>(i);
  }
  return -1;
}

std::size_t TrackedGuard::position_of(const std::string& path) const {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (!watched_[i].is_gradient && watched_[i].path == path) return i;
  }
  throw Error(ErrorCode::kInternal, "no tracked tensor has the path " + path);
}

}  // namespace steptape::guards
