#include "guards/tensor_facts.h"

#include <algorithm>
#include <utility>

#include "guards/entry.h"
#include "live/fields.h"
#include "live/tensors.h"

namespace steptape::guards {
namespace {

/// Far enough ahead that what a look needs has arrived from memory when its turn comes.
constexpr std::size_t kAhead = 12;

template <std::size_t kBytes>
inline void fetch(const void* object) {
  for (std::size_t at = 0; at < kBytes; at += kCacheLine) {
    __builtin_prefetch(static_cast<const char*>(object) + at);
  }
}

/// Of Hooks() among hooks.
constexpr std::uint32_t kNoHooks = 0;

template <typename Item>
std::uint32_t number_in(std::vector<Item>& items, const Item& item) {
  const auto known = std::ranges::find(items, item);
  const auto number = static_cast<std::uint32_t>(known - items.begin());
  if (known == items.end()) items.push_back(item);
  return number;
}

}  // namespace

std::uint32_t TensorFacts::number_of(const Kind& kind) { return number_in(kinds_, kind); }

std::uint32_t TensorFacts::number_of_shape(const trace::Tensor& geometry) {
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(geometry.sizes.size())};
  shape.insert(shape.end(), geometry.sizes.begin(), geometry.sizes.end());
  shape.insert(shape.end(), geometry.strides.begin(), geometry.strides.end());
  const auto [at, is_new] =
      shape_at_.emplace(std::move(shape), static_cast<std::uint32_t>(shapes_.size()));
  if (is_new) shapes_.insert(shapes_.end(), at->first.begin(), at->first.end());
  return at->second;
}

void TensorFacts::add(Weak owner, const Expectation& expectation, const at::Tensor& tensor) {
  Kind kind;
  kind.is_gradient = expectation.is_gradient;
  kind.is_none = expectation.geometry == nullptr;
  kind.requires_grad = expectation.requires_grad;
  kind.is_written = expectation.is_written;
  kind.hooks = number_in(hooks_, expectation.hooks);
  kind.gradient_type = static_cast<std::int16_t>(expectation.gradient_type);
  Fact fact{std::move(owner), nullptr, 0, -1, nullptr, nullptr};
  fact.tensor = tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr;
  if (!kind.is_none) {
    kind.shape = number_of_shape(*expectation.geometry);
    kind.offset = expectation.geometry->offset;
    kind.bytes = expectation.buffer->bytes;
    kind.address_mod_64 = expectation.buffer->address_mod_64;
    kind.dtype = static_cast<std::uint8_t>(live::scalar_type_of(expectation.geometry->dtype));
    kind.is_wrapped_number = expectation.geometry->wrapped_number;
    if (tensor.defined()) {
      kind.keys = tensor.key_set().raw_repr();
      if (tensor.has_storage()) {
        fact.storage = tensor.storage().unsafeGetStorageImpl();
        fact.address = tensor.storage().data();
      }
    }
    fact.position = static_cast<std::int32_t>(expectation.position);
  }
  fact.kind = number_of(kind);
  facts_.push_back(std::move(fact));
}

void TensorFacts::renew(std::size_t k, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  Kind kind = kinds_[facts_[k].kind];
  kind.keys = tensor.key_set().raw_repr();
  facts_[k].kind = number_of(kind);
}

inline bool TensorFacts::has_shape(const c10::TensorImpl& tensor,
                                   const std::int64_t* expected) const {
  const auto& shape = live::TensorFields::sizes_and_strides(tensor);
  const auto dims = static_cast<std::size_t>(*expected++);
  if (shape.size() != dims) return false;
  const std::int64_t* size = shape.sizes_data();
  const std::int64_t* stride = shape.strides_data();
  for (std::size_t d = 0; d < dims; ++d) {
    if (size[d] != expected[d] || stride[d] != expected[dims + d]) return false;
  }
  return true;
}

inline bool TensorFacts::holds(const c10::TensorImpl& tensor, const Kind& kind) const {
  return tensor.key_set().raw_repr() == kind.keys &&
         tensor.dtype() ==
             caffe2::TypeMeta::fromScalarType(static_cast<at::ScalarType>(kind.dtype)) &&
         live::TensorFields::storage_offset(tensor) == kind.offset &&
         tensor.is_wrapped_number() == kind.is_wrapped_number &&
         has_shape(tensor, shapes_.data() + kind.shape);
}

inline bool TensorFacts::place(const c10::TensorImpl& tensor, const Kind& kind, void*& slot) {
  const c10::StorageImpl* storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  auto* address = const_cast<void*>(storage->data());
  if (storage->nbytes() != kind.bytes) return false;
  if (kind.is_written && live::is_lazily_shared(*storage)) return false;
  if (kind.bytes != 0) {
    const auto remainder = reinterpret_cast<std::uintptr_t>(address) % kCacheLine;
    if (remainder != kind.address_mod_64 || (slot != nullptr && slot != address)) return false;
  }
  slot = address;
  return true;
}

void TensorFacts::note_move(std::size_t k, const void* address) const {
  Fact& fact = facts_[k];
  ++moves_;
  if (!kinds_[fact.kind].is_gradient) moved_ = static_cast<std::int64_t>(k);
  fact.address = address;
}

std::size_t TensorFacts::first_broken(std::size_t from, std::span<void*> memory) const {
  Fact* const facts = facts_.data();
  const Kind* const kinds = kinds_.data();
  void** const slots = memory.data();
  const std::size_t end = facts_.size();
  const c10::TensorImpl* owner = nullptr;
  const c10::TensorImpl* gradient = nullptr;  // of `owner`
  bool requires_grad = false;                 // the owner
  for (std::size_t k = from; k < end; ++k) {
    const Fact& ahead = facts[std::min(k + kAhead, end - 1)];
    fetch<sizeof(c10::TensorImpl)>(ahead.tensor);
    fetch<kCacheLine>(ahead.storage);
    Fact& fact = facts[k];
    const Kind& kind = kinds[fact.kind];
    if (owner != fact.owner._unsafe_get_target()) {
      if (fact.owner.use_count() == 0) return k;
      // alive at this moment, and no one else's code runs until the look is over
      owner = fact.owner._unsafe_get_target();
      const auto* meta = live::autograd_meta_of(*owner);
      gradient = live::gradient_of(meta);
      requires_grad = live::requires_grad(meta);
      if (live::gradient_type_of(meta) != kind.gradient_type) return k;
      if (live::has_hooks(meta) || kind.hooks != kNoHooks) {
        if (live::hooks_of(*owner) != hooks_[kind.hooks]) return k;
      }
    }
    const c10::TensorImpl* tensor = kind.is_gradient ? gradient : owner;
    if (kind.is_none != (tensor == nullptr)) return k;
    if (kind.is_none) continue;
    const bool requires_one =
        kind.is_gradient ? live::requires_grad(live::autograd_meta_of(*tensor)) : requires_grad;
    if (requires_one != kind.requires_grad || !holds(*tensor, kind)) return k;
    if (fact.position < 0) continue;
    void*& slot = slots[fact.position];
    if (!place(*tensor, kind, slot)) return k;
    if (slot == fact.address) continue;
    note_move(k, slot);
    fact.tensor = tensor;
    fact.storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  }
  return end;
}

}  // namespace steptape::guards
