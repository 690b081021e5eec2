#include "recorder/buffers.h"

#include <algorithm>
#include <iterator>

#include "live/tensors.h"

namespace steptape::recorder {
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
                   .origin = origin,
                   .first_byte = 0,
                   .address = 0,
                   .made_by = trace::kNone,
                   .first_write = trace::kNone,
                   .written = std::nullopt,
                   .content = std::nullopt});
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
  return live::sampled_digest(bytes + live.first_byte, storage.device(), buffers_[id].bytes);
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
