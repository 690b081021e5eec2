#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "trace/model.h"

namespace steptape::diff {

/// An op in words that do not depend on how its recording numbers tensors, buffers, operators and
/// modules. Tensors stand as what they are to the step: path, dtype, sizes, and strides where they
/// are not those of a contiguous tensor. A scalar with a formula stands as "formula".
struct StreamOp {
  std::string call;  ///< "model.fc1@2", the call that issued it; empty where it is unknown
  trace::Phase phase = trace::Phase::kForward;
  /// "aten::add_.Tensor(model.fc1.weight float32 [2, 2], float32 [2, 2], 1) → float32 [2, 2]"
  std::string text;
  /// Of the tensors in `text` that no path leads to, in order: which of them share memory.
  std::vector<trace::BufferId> buffers;
  friend bool operator==(const StreamOp&, const StreamOp&) = default;
};

/// " offset 3 conj": what else than sizes and strides a tensor is on its buffer; mostly nothing.
std::string words_of_view(const trace::Tensor& tensor);

/// A recording as a stream of ops. `recording` must be valid and outlive it.
class OpStream {
 public:
  explicit OpStream(const trace::Recording& recording);

  const trace::Recording& recording() const { return recording_; }
  StreamOp op(trace::Index op) const;
  /// "model.fc1@2"; empty where the op's module is unknown.
  std::string call_of(const trace::Op& op) const;
  /// Whether a path leads to it, one that does not count what comes before: "outside[0]" does.
  bool is_named(trace::BufferId buffer) const;
  /// "model.fc1.weight float32 [2, 2]"; "undefined"; of a number that the host made, its value.
  const std::string& words_of(trace::TensorId tensor) const;
  /// The number that the host made and `tensor` holds, "formula" where it has one; or empty.
  std::string number_of(const trace::Tensor& tensor) const;
  /// Where a buffer that op `reader` uses comes from: its path, "result of op 12 aten::relu",
  /// "a new tensor", "a tensor that no op made".
  std::string origin_of(trace::BufferId buffer, trace::Index reader) const;
  /// Argument `argument`, or item `item` of it, in the words of `text`.
  std::string words_of(trace::Index op, trace::Index argument, trace::Index item,
                       const trace::Value& value) const;
  /// The formula at this place in Recording::formulas, or kNone.
  trace::Index formula_at(trace::Index op, trace::Index argument, trace::Index item) const;
  /// Those of the elements of a buffer.
  const std::vector<trace::Index>& formulas_of(trace::BufferId buffer) const;

 private:
  std::string words_of_tensor(const trace::Tensor& tensor) const;
  void find_makers();

  const trace::Recording& recording_;
  std::vector<trace::Index> makers_;  ///< by buffer: the op that made it, or kNone
  std::unordered_map<std::uint64_t, std::vector<const trace::ScalarSite*>> sites_;  ///< by op
  std::unordered_map<trace::BufferId, std::vector<trace::Index>> bound_buffers_;
  std::vector<std::string> tensors_;
};

}  // namespace steptape::diff
