#include "replayer/player/index_bounds.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "guards/mismatch.h"
#include "trace/operators.h"

namespace steptape::replayer {
namespace {

/// An operator that takes indices, by the places of its arguments.
struct Row {
  std::string_view name;
  std::size_t indices;
  std::size_t indexed;
  int dimension;     ///< of what is indexed; kGiven: argument 1 says
  int ignored = -1;  ///< the argument that names an index to pass over
};
constexpr int kGiven = -1;
constexpr std::array kRows = {
    Row{"aten::embedding", 1, 0, 0},
    Row{"aten::index_select", 2, 0, kGiven},
    Row{"aten::gather", 2, 0, kGiven},
    Row{"aten::nll_loss_forward", 1, 0, 1, 4},
    Row{"aten::nll_loss2d_forward", 1, 0, 1, 4},
};

const trace::Tensor* tensor_of(const trace::Recording& recording, const trace::Op& op,
                               std::size_t argument) {
  return argument < op.inputs.size() ? recording.find_tensor(op.inputs[argument]) : nullptr;
}

std::int64_t integer_of(const trace::Op& op, std::size_t argument, std::int64_t otherwise) {
  const auto* found =
      argument < op.inputs.size() ? std::get_if<std::int64_t>(&op.inputs[argument].data) : nullptr;
  return found == nullptr ? otherwise : *found;
}

template <typename Integer>
std::optional<std::int64_t> first_outside(const at::Tensor& tensor, const auto& bound) {
  const at::Tensor flat = tensor.contiguous();
  for (const Integer index :
       std::span(flat.const_data_ptr<Integer>(), static_cast<std::size_t>(flat.numel()))) {
    if ((index < bound.low || index >= bound.high) && index != bound.ignored) return index;
  }
  return std::nullopt;
}

}  // namespace

IndexBounds::IndexBounds(const trace::Recording& recording)
    : is_written_(recording.buffers.size(), false) {
  for (const trace::OpUse& use : trace::uses_of(recording)) {
    for (const trace::TensorId id : use.writes) is_written_[recording.tensors[id].buffer] = true;
  }
  for (const trace::Op& op : recording.ops) look_at(recording, op);
}

void IndexBounds::look_at(const trace::Recording& recording, const trace::Op& op) {
  const auto* const row = std::ranges::find(kRows, recording.operator_of(op).name, &Row::name);
  if (row == kRows.end()) return;
  const trace::Tensor* indexed = tensor_of(recording, op, row->indexed);
  if (indexed == nullptr || tensor_of(recording, op, row->indices) == nullptr) return;
  const auto dimensions = static_cast<std::int64_t>(indexed->sizes.size());
  if (dimensions == 0) return;
  std::int64_t dimension = row->dimension;
  if (row->dimension == kGiven) dimension = integer_of(op, 1, 0);
  if (dimension < 0) dimension += dimensions;
  dimension = std::min(dimension, dimensions - 1);  // a loss of one sample has no batch
  if (dimension < 0) return;
  std::optional<std::int64_t> ignored;
  if (row->ignored >= 0) ignored = integer_of(op, static_cast<std::size_t>(row->ignored), -100);
  add(recording, std::get<trace::TensorRef>(op.inputs[row->indices].data).id, 0,
      indexed->sizes[static_cast<std::size_t>(dimension)], ignored);
}

void IndexBounds::add(const trace::Recording& recording, trace::TensorId indices, std::int64_t low,
                      std::int64_t high, std::optional<std::int64_t> ignored) {
  const trace::Tensor& used = recording.tensors[indices];
  if (is_written_[used.buffer]) return;
  for (std::size_t i = 0; i < recording.inputs.size(); ++i) {
    const trace::Tensor* input = recording.find_tensor(recording.inputs[i].value);
    if (input == nullptr) continue;
    const trace::Tensor& given = *input;
    const bool is_integer =
        given.dtype == trace::DType::kInt64 || given.dtype == trace::DType::kInt32;
    // all of its elements, in whatever shape
    if (given.buffer != used.buffer || given.dtype != used.dtype || !is_integer ||
        given.numel() != used.numel() || given.byte_range() != used.byte_range())
      continue;
    bounds_.push_back({i, low, high, ignored, recording.inputs[i].path});
  }
}

Verdict IndexBounds::check(std::span<const live::Argument> arguments) const {
  for (const Bound& bound : bounds_) {
    // an index beyond its table would end a device for the whole process
    const at::Tensor tensor = arguments[bound.argument].tensor.cpu();
    const auto found = tensor.scalar_type() == at::kLong
                           ? first_outside<std::int64_t>(tensor, bound)
                           : first_outside<std::int32_t>(tensor, bound);
    if (!found) continue;
    return guards::failed(
        GuardKind::kArgument, bound.path,
        "indices from " + std::to_string(bound.low) + " to " + std::to_string(bound.high - 1),
        std::to_string(*found));
  }
  return {};
}

}  // namespace steptape::replayer
