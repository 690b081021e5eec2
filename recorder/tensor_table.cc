#include "recorder/tensor_table.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>

#include "live/contents.h"
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
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  const auto first = tensor.storage_offset() * item - static_cast<std::int64_t>(live.first_byte);
  const bool is_inside = first >= 0 && first % item == 0;
  if (tensor.numel() == 0) {  // it may lie beside what the step is given
    const auto bytes = static_cast<std::int64_t>(recording_.buffers[id].bytes);
    return is_inside && first <= bytes ? first / item : 0;
  }
  if (!is_inside) return std::nullopt;
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

namespace {

constexpr std::size_t kMostOfTemporaries = std::size_t{1} << 20;

/// The host and CUDA devices share one address space.
bool has_address(const c10::StorageImpl& storage) {
  return storage.device().is_cpu() || storage.device().is_cuda();
}

}  // namespace

std::optional<trace::BufferId> BufferTable::find(const c10::StorageImpl* storage) {
  const auto found = ids_.find(storage);
  if (found == ids_.end()) return std::nullopt;
  if (live_[found->second].origin == Origin::kMade) note_address(found->second);
  return found->second;
}

void BufferTable::note_address(trace::BufferId id) {
  LiveBuffer& live = live_[id];
  const c10::StorageImpl& storage = *live.storage;
  if (!has_address(storage)) return;
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  if (address == live.address) return;
  live.address = address;
  made_[address] = id;  // what was there before is dead
}

trace::BufferId BufferTable::add(c10::StorageImpl* storage, Origin origin) {
  const auto id = static_cast<trace::BufferId>(live_.size());
  live_.push_back({.weak = c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage),
                   .storage = storage,
                   .origin = origin});
  trace::Buffer& description = buffers_.emplace_back();
  description.bytes = storage->nbytes();
  description.device = live::device_of(storage->device());
  description.address_mod_64 = live::address_mod_64(*storage);
  ids_.emplace(storage, id);
  if (origin == Origin::kMade) note_address(id);
  return id;
}

std::optional<trace::Digest> BufferTable::digest_of(trace::BufferId id) const {
  const LiveBuffer& live = live_[id];
  if (!live.is_alive()) return std::nullopt;
  const c10::StorageImpl& storage = *live.storage;
  if (!has_address(storage) || storage.nbytes() == 0) return std::nullopt;
  if (live.origin == Origin::kMade && storage.nbytes() > kMostOfTemporaries) return std::nullopt;
  if (live.origin != Origin::kInput) return live::sampled_digest(storage);
  // The rest of an input's storage may be somebody else's: a loader fills the next batch there.
  const auto* bytes = static_cast<const std::byte*>(storage.data());
  return live::sampled_digest({bytes + live.first_byte, storage.device(), buffers_[id].bytes});
}

std::optional<trace::BufferId> BufferTable::made_within(std::uintptr_t begin, std::uintptr_t end) {
  const auto stands = [&](const auto& entry) {
    return live_[entry.second].is_alive() && live_[entry.second].address == entry.first;
  };
  auto next = made_.upper_bound(begin);
  // of those that stand none lies over another: only the last before `begin` can reach over it
  while (next != made_.begin()) {
    const auto before = std::prev(next);
    if (!stands(*before)) {
      made_.erase(before);
      continue;
    }
    if (begin < before->first + live_[before->second].storage->nbytes()) return before->second;
    break;
  }
  while (next != made_.end() && next->first < end) {
    if (stands(*next)) return next->second;
    next = made_.erase(next);
  }
  return std::nullopt;
}

std::optional<trace::BufferId> BufferTable::place(trace::BufferId id) {
  // an op's own allocation lies over nothing that lives
  if (live_[id].origin == Origin::kMade) return std::nullopt;
  const c10::StorageImpl& storage = *live_[id].storage;
  if (!has_address(storage) || storage.nbytes() == 0) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.data());
  const auto end = begin + storage.nbytes();
  auto met_last = ranges_.end();
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second.end > begin) --next;
  while (next != ranges_.end() && next->first < end) {
    const LiveBuffer& met = live_[next->second.buffer];
    const bool stands =
        met.is_alive() && reinterpret_cast<std::uintptr_t>(met.storage->data()) == next->first;
    if (!stands) {
      next = ranges_.erase(next);
      continue;
    }
    // what lies over none of them but over this one is to be met, too: no gap is left
    if (met_last != ranges_.end()) {
      met_last->second.end = next->first;
    } else if (begin < next->first) {
      ranges_.emplace(begin, Range{next->first, id});
    }
    overlapping_.emplace_back(id, next->second.buffer);
    met_last = next++;
  }
  if (met_last == ranges_.end()) {
    ranges_.emplace(begin, Range{end, id});
  } else {
    met_last->second.end = std::max(met_last->second.end, end);
  }
  return live_[id].origin == Origin::kForeign ? made_within(begin, end) : std::nullopt;
}

}  // namespace steptape::recorder
