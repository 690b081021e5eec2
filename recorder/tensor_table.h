#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <optional>
#include <vector>

#include "recorder/buffers.h"
#include "recorder/refusals.h"
#include "trace/model.h"

namespace steptape::recorder {

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
