#include "recorder/tensor_table.h"

#include <c10/util/StringUtil.h>

#include "live/device_bytes.h"
#include "live/tensors.h"

namespace steptape::recorder {
namespace {

constexpr std::size_t kMostContent = std::size_t{64} << 20;

/// Geometry of a live tensor, to be looked up without copying it.
struct Shape {
  trace::BufferId buffer;
  std::int64_t offset;  ///< in elements from the start of the buffer
  const at::Tensor& tensor;

  std::size_t hash() const {
    std::size_t hash = (buffer + 1) * 0x9e3779b97f4a7c15u;
    const auto mix = [&hash](std::int64_t value) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9fb21c651e98df25u;
      hash ^= hash >> 29;
    };
    mix(static_cast<std::int64_t>(tensor.scalar_type()));
    mix(offset);
    for (const auto size : tensor.sizes()) mix(size);
    for (const auto stride : tensor.strides()) mix(stride);
    return hash;
  }

  bool is(const trace::Tensor& known) const {
    return known.buffer == buffer && known.offset == offset && tensor.sizes() == known.sizes &&
           tensor.strides() == known.strides &&
           live::scalar_type_of(known.dtype) == tensor.scalar_type() &&
           known.conj == tensor.is_conj() && known.neg == tensor.is_neg() &&
           known.wrapped_number == tensor.unsafeGetTensorImpl()->is_wrapped_number();
  }
};

}  // namespace

trace::TensorId TensorTable::see(const at::Tensor& tensor, Origin origin, const Site& site) {
  if (!tensor.defined() || refuse_kind(tensor, site)) return trace::kNoTensor;
  const trace::BufferId id = buffer_for(tensor, origin, site);
  const auto offset = offset_in(id, tensor);
  if (!offset) {
    refusals_.add(RefusalCode::kOverlappingMemory, site,
                  "the step reaches memory around `" + recording_.buffers[id].path +
                      "` that no argument covers");
    return trace::kNoTensor;
  }
  return number(tensor, id, *offset);
}

trace::TensorId TensorTable::recognise(const at::Tensor& tensor) {
  if (!tensor.defined() || live::unplannable_kind(tensor)) return trace::kNoTensor;
  const auto id = buffers.find(tensor.storage().unsafeGetStorageImpl());
  if (!id) return trace::kNoTensor;
  const auto offset = offset_in(*id, tensor);
  return offset ? number(tensor, *id, *offset) : trace::kNoTensor;
}

bool TensorTable::refuse_kind(const at::Tensor& tensor, const Site& site) {
  if (const auto kind = live::unplannable_kind(tensor)) {
    refusals_.add(RefusalCode::kTensorKind, site, c10::str("a tensor that is ", *kind));
    return true;
  }
  if (const auto device = live::foreign_device(tensor)) {
    refusals_.add(RefusalCode::kDevice, site, c10::str("a tensor on device ", *device));
    return true;
  }
  return false;
}

trace::BufferId TensorTable::buffer_for(const at::Tensor& tensor, Origin origin, const Site& site) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (const auto known = buffers.find(storage)) {
    // An `out=` argument of another size makes its storage grow.
    if (buffers.live(*known).origin == Origin::kMade) {
      auto& bytes = buffers.description(*known).bytes;
      bytes = std::max<std::uint64_t>(bytes, storage->nbytes());
    }
    return *known;
  }
  const trace::BufferId id = buffers.add(storage, origin);
  if (origin == Origin::kMade) buffers.live(id).made_by = site.index;
  if (origin == Origin::kForeign) keep_content(id);
  if (const auto other = buffers.place(id)) {
    refusals_.add(RefusalCode::kOverlappingMemory, site,
                  c10::str("buffers ", *other, " and ", id, " lie over the same bytes (",
                           shape_text(live::geometry_of(tensor, id)), ")"));
  }
  return id;
}

// A tensor that the host made is dead when its op returns: its bytes are taken now or never.
void TensorTable::keep_content(trace::BufferId id) {
  const c10::StorageImpl& storage = *buffers.live(id).storage;
  if (!storage.device().is_cpu() && !storage.device().is_cuda()) return;
  trace::Buffer& description = buffers.description(id);
  description.digest = live::full_digest(storage);
  if (storage.nbytes() <= kMostContent) description.content = live::blob_of(storage);
}

std::optional<std::int64_t> TensorTable::offset_in(trace::BufferId id,
                                                   const at::Tensor& tensor) const {
  const LiveBuffer& live = buffers.live(id);
  if (live.origin != Origin::kInput) return tensor.storage_offset();
  if (tensor.numel() == 0) return 0;
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  const auto first = tensor.storage_offset() * item - static_cast<std::int64_t>(live.first_byte);
  if (first < 0 || first % item != 0) return std::nullopt;
  trace::Tensor geometry = live::geometry_of(tensor, id);
  geometry.offset = first / item;
  if (geometry.byte_range().second > recording_.buffers[id].bytes) return std::nullopt;
  return geometry.offset;
}

trace::TensorId TensorTable::number(const at::Tensor& tensor, trace::BufferId buffer,
                                    std::int64_t offset) {
  const Shape shape{buffer, offset, tensor};
  if (newest_.size() <= buffer) newest_.resize(buffer + 1, trace::kNoTensor);
  trace::TensorId& newest_here = newest_[buffer];
  if (newest_here != trace::kNoTensor && shape.is(recording_.tensors[newest_here])) {
    return newest_here;
  }
  const std::size_t hash = shape.hash();
  const auto newest = by_hash_.find(hash);
  trace::TensorId candidate = newest == by_hash_.end() ? trace::kNoTensor : newest->second;
  const trace::TensorId before = candidate;
  for (; candidate != trace::kNoTensor; candidate = before_[candidate]) {
    if (shape.is(recording_.tensors[candidate])) return newest_here = candidate;
  }
  const auto id = static_cast<trace::TensorId>(recording_.tensors.size());
  recording_.tensors.push_back(live::geometry_of(tensor, buffer));
  recording_.tensors.back().offset = offset;
  by_hash_[hash] = id;
  before_.push_back(before);
  return newest_here = id;
}

std::string shape_text(const trace::Tensor& tensor) {
  std::string text;
  for (const auto size : tensor.sizes) text += (text.empty() ? "" : "×") + std::to_string(size);
  if (text.empty()) text = "scalar";
  return text + " " + std::string(trace::name_of(tensor.dtype));
}

}  // namespace steptape::recorder
