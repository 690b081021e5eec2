#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "recorder/byte_ranges.h"
#include "recorder/refusals.h"
#include "trace/model.h"

namespace steptape::recorder {

/// Where a buffer came from.
enum class Origin {
  kInput,    ///< an argument of the step
  kTracked,  ///< reached from a tracked object at entry
  kForeign,  ///< first seen as an argument of an op
  kMade,     ///< made by a recorded op
};

/// A buffer of the running step. The storage is held weakly: its memory is freed when the step
/// frees it, and the empty StorageImpl stays, so that its address stands for no other.
struct LiveBuffer {
  c10::weak_intrusive_ptr<c10::StorageImpl> weak;
  const c10::StorageImpl* storage;  ///< for reading only while `is_alive`
  Origin origin = Origin::kMade;
  std::uint64_t first_byte = 0;  ///< inputs: where the trace's buffer starts in the storage
  std::uintptr_t address = 0;    ///< of what the step made: when it was last seen
  trace::Index made_by = trace::kNone;
  trace::Index first_write = trace::kNone;
  std::optional<ByteRanges> written = {};     ///< of memory that its maker left unwritten
  std::optional<trace::Digest> content = {};  ///< when a recorded op was last seen to use it
  // of memory that nobody announced
  ByteRanges overwritten = {};
  bool is_read_first = false;  ///< bytes that the step had not written
  bool is_exchanged = false;   ///< with other processes
  /// It is written, and the front end knows all tensors that the program's own code has.
  bool may_be_scratch = false;
  bool has_each_index = false;    ///< as a permutation, which an op that sorts has left
  bool is_left_as_found = false;  ///< holds the same when the step ends as when it was met

  /// A buffer in which somebody puts together what a collective exchanges, as the buckets of
  /// DistributedDataParallel: what it holds before the step matters to nobody.
  bool is_bucket() const { return may_be_scratch && is_exchanged && !is_read_first && is_alive(); }
  /// Or one that is put in order again, as its map of parameters that were used.
  bool is_scratch() const {
    return is_bucket() || (may_be_scratch && is_left_as_found && is_alive());
  }
  bool is_alive() const { return weak.use_count() > 0; }
};

/// Storages by address. Fills Recording::buffers, whose entries have the same positions.
class BufferTable {
 public:
  explicit BufferTable(std::vector<trace::Buffer>& buffers) : buffers_(buffers) {}

  std::optional<trace::BufferId> find(const c10::StorageImpl* storage);
  trace::BufferId add(c10::StorageImpl* storage, Origin origin);

  LiveBuffer& live(trace::BufferId id) { return live_[id]; }
  const LiveBuffer& live(trace::BufferId id) const { return live_[id]; }
  trace::Buffer& description(trace::BufferId id) { return buffers_[id]; }
  std::size_t size() const { return live_.size(); }

  /// Digest of what a buffer holds now, read straight from memory: no op, no reference. Buffers
  /// above 1 MiB are sampled, and not looked at when they were made in the step; those off the CPU
  /// and dead ones have none.
  std::optional<trace::Digest> digest_of(trace::BufferId id) const;

  /// Notes where `id` lies, once for each buffer, when it is added. Returns the living buffer of
  /// the step's own making that lies over some of the same bytes, if there is one.
  std::optional<trace::BufferId> place(trace::BufferId id);
  /// Pairs of those that the step did not make and that lie over the same bytes; where more than
  /// two do, pairs that lead from each to each.
  const std::vector<std::pair<trace::BufferId, trace::BufferId>>& overlapping() const {
    return overlapping_;
  }

 private:
  std::optional<trace::BufferId> made_within(std::uintptr_t begin, std::uintptr_t end);
  void note_address(trace::BufferId id);

  std::vector<trace::Buffer>& buffers_;
  std::vector<LiveBuffer> live_;
  ska::flat_hash_map<const c10::StorageImpl*, trace::BufferId> ids_;
  struct Range {
    std::uintptr_t end;
    trace::BufferId buffer;
  };
  /// Memory that the step did not make, by CPU address; entries of the dead go when met.
  std::map<std::uintptr_t, Range> ranges_;
  std::vector<std::pair<trace::BufferId, trace::BufferId>> overlapping_;
  /// Memory that it made, by the address at which it was last seen: an op may resize it. Entries of
  /// the dead and of what has moved go when met.
  std::map<std::uintptr_t, trace::BufferId> made_;
};

/// Numbers tensors and buffers by first sight, so that recordings of equal steps are equal. A
/// tensor that no trace can hold gets no number but a refusal.
class TensorTable {
 public:
  TensorTable(trace::Recording& recording, Refusals& refusals)
      : buffers(recording.buffers), recording_(recording), refusals_(refusals) {}

  /// The number of a tensor; a storage not seen before becomes a buffer of this origin.
  trace::TensorId see(const at::Tensor& tensor, Origin origin, const Site& site);
  /// The number of a tensor over a buffer seen before, else kNoTensor; refuses nothing.
  trace::TensorId recognise(const at::Tensor& tensor);
  /// The buffer under a numbered tensor.
  trace::BufferId buffer_of(trace::TensorId id) const { return recording_.tensors[id].buffer; }

  BufferTable buffers;

 private:
  bool refuse_kind(const at::Tensor& tensor, const Site& site);
  trace::BufferId buffer_for(const at::Tensor& tensor, Origin origin, const Site& site);
  void keep_content(trace::BufferId id);
  /// In elements from the start of the trace's buffer; none for a tensor that leaves it.
  std::optional<std::int64_t> offset_in(trace::BufferId id, const at::Tensor& tensor) const;
  trace::TensorId number(const at::Tensor& tensor, trace::BufferId buffer, std::int64_t offset);

  trace::Recording& recording_;
  Refusals& refusals_;
  /// The newest tensor with a hash; `before_` leads to the others, by tensor.
  ska::flat_hash_map<std::size_t, trace::TensorId> by_hash_;
  std::vector<trace::TensorId> before_;
  std::vector<trace::TensorId> newest_;  ///< that was seen, by buffer: most are seen again at once
};

/// "64×32 float32": a tensor as refusals name it.
std::string shape_text(const trace::Tensor& tensor);

}  // namespace steptape::recorder
