#include "guards/tensor_facts.h"

#include <algorithm>
#include <utility>

#include "live/tensors.h"

namespace steptape::guards {
namespace {

/// Far enough ahead that what a look needs has arrived from memory when its turn comes.
constexpr std::size_t kTensorsAhead = 16;
constexpr std::size_t kStoragesAhead = 8;
constexpr std::size_t kLine = 64;

void fetch_ahead(const void* object, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    __builtin_prefetch(static_cast<const char*>(object) + at);
  }
}

}  // namespace

void TensorFacts::add(Weak owner, bool is_gradient, bool requires_grad, const live::Hooks& hooks,
                      const trace::Tensor* geometry, const trace::Buffer* buffer,
                      std::int64_t position) {
  Fact fact{std::move(owner)};
  fact.is_gradient = is_gradient;
  fact.is_none = geometry == nullptr;
  fact.requires_grad = requires_grad;
  const auto known = std::ranges::find(hooks_, hooks);
  fact.hooks = static_cast<std::uint32_t>(known - hooks_.begin());
  if (known == hooks_.end()) hooks_.push_back(hooks);
  if (geometry != nullptr) {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(geometry->sizes.size())};
    shape.insert(shape.end(), geometry->sizes.begin(), geometry->sizes.end());
    shape.insert(shape.end(), geometry->strides.begin(), geometry->strides.end());
    const auto [at, is_new] =
        shape_at_.emplace(std::move(shape), static_cast<std::uint32_t>(shapes_.size()));
    if (is_new) shapes_.insert(shapes_.end(), at->first.begin(), at->first.end());
    fact.shape = at->second;
    fact.offset = geometry->offset;
    fact.bytes = buffer->bytes;
    fact.address_mod_64 = static_cast<std::uint8_t>(buffer->address_mod_64);
    fact.dtype = static_cast<std::uint8_t>(live::scalar_type_of(geometry->dtype));
    fact.is_wrapped_number = geometry->wrapped_number;
    fact.position = static_cast<std::int32_t>(position);
  }
  facts_.push_back(std::move(fact));
}

std::size_t TensorFacts::first_broken(std::size_t from, std::span<void*> memory) const {
  for (std::size_t k = from; k < facts_.size(); ++k) {
    // weak handles keep the objects readable, dead ones too
    if (k + kTensorsAhead < facts_.size()) {
      fetch_ahead(facts_[k + kTensorsAhead].owner._unsafe_get_target(), sizeof(c10::TensorImpl));
    }
    if (k + kStoragesAhead < facts_.size()) {
      const c10::TensorImpl* ahead = facts_[k + kStoragesAhead].owner._unsafe_get_target();
      fetch_ahead(ahead->unsafe_storage().unsafeGetStorageImpl(), 2 * kLine);
    }
    if (!holds(facts_[k], memory)) return k;
  }
  return facts_.size();
}

bool TensorFacts::has_shape(const c10::TensorImpl& tensor, std::uint32_t shape) const {
  const std::int64_t* expected = shapes_.data() + shape;
  const at::IntArrayRef sizes = tensor.sizes();
  const at::IntArrayRef strides = tensor.strides();
  const auto dims = static_cast<std::size_t>(*expected++);
  if (sizes.size() != dims) return false;
  for (std::size_t d = 0; d < dims; ++d) {
    if (sizes[d] != expected[d] || strides[d] != expected[dims + d]) return false;
  }
  return true;
}

bool TensorFacts::holds(const Fact& fact, std::span<void*> memory) const {
  if (fact.owner.use_count() == 0) return false;
  // alive at this moment, and no one else's code runs until the look is over
  const c10::TensorImpl* tensor = fact.owner._unsafe_get_target();
  live::Autograd autograd = live::autograd_of(*tensor);
  if (autograd.hooks != hooks_[fact.hooks]) return false;
  if (fact.is_gradient) {
    tensor = autograd.gradient;
    if (tensor == nullptr || fact.is_none) return tensor == nullptr && fact.is_none;
    autograd.requires_grad = live::autograd_of(*tensor).requires_grad;
  }
  const bool is_expected =
      tensor->key_set().raw_repr() == fact.keys &&
      tensor->dtype() ==
          caffe2::TypeMeta::fromScalarType(static_cast<at::ScalarType>(fact.dtype)) &&
      has_shape(*tensor, fact.shape) && tensor->storage_offset() == fact.offset &&
      tensor->is_wrapped_number() == fact.is_wrapped_number &&
      autograd.requires_grad == fact.requires_grad;
  if (!is_expected) return false;
  if (fact.position < 0) return true;
  const c10::StorageImpl* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  auto* address = const_cast<void*>(storage->data());
  if (storage->nbytes() < fact.bytes) return false;
  void*& slot = memory[static_cast<std::size_t>(fact.position)];
  if (fact.bytes != 0) {
    const auto remainder = reinterpret_cast<std::uintptr_t>(address) % 64;
    if (remainder != fact.address_mod_64 || (slot != nullptr && slot != address)) return false;
  }
  slot = address;
  return true;
}

}  // namespace steptape::guards
