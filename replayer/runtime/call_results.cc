#include "replayer/runtime/call_results.h"

#include <utility>
#include <vector>

#include "guards/mismatch.h"
#include "live/device_bytes.h"
#include "live/tensors.h"
#include "live/values.h"

namespace steptape::replayer {
namespace {

std::string result_path(const Call& call, std::size_t position) {
  return name_of(call) + " results[" + std::to_string(position) + "]";
}

AssumptionViolated other_result(Verdict verdict) {
  verdict.kind = GuardKind::kRunShape;
  return {RefusalCode::kDataDependentShape, std::move(verdict)};
}

bool lies_as(const at::Tensor& result, const trace::Tensor& expected) {
  return guards::has_geometry(result, expected, live::scalar_type_of(expected.dtype)) &&
         result.storage_offset() == expected.offset;
}

/// Under capture small results that lie on the host otherwise lie on the device: seeds of
/// attention.
bool lies_where(const at::Tensor& result, const trace::Buffer& buffer, Placement placement) {
  return guards::is_on(result, buffer.device) || placement == Placement::kCaptured;
}

bool fits(const at::Tensor& result, const trace::Tensor& expected, const trace::Buffer& buffer) {
  // the plan's own storages cannot be resized: one of them must not reach the user as new memory
  return result.defined() && result.has_storage() && result.storage().resizable() &&
         lies_as(result, expected) && result.storage().nbytes() >= buffer.bytes;
}

}  // namespace

void CallResults::adopt(const Call& call, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    live::for_each_tensor(value, [&](const at::Tensor& tensor) { results.push_back(tensor); });
  }
  if (results.size() != call.outputs.size()) {
    throw other_result(guards::failed(GuardKind::kRunShape, name_of(call) + " results.size",
                                      static_cast<std::int64_t>(call.outputs.size()),
                                      static_cast<std::int64_t>(results.size())));
  }
  for (std::size_t i = 0; i < results.size(); ++i) adopt(call, i, results[i]);
}

void CallResults::adopt(const Call& call, std::size_t position, const at::Tensor& result) {
  const trace::TensorId id = call.outputs[position];
  if (id == trace::kNoTensor) {
    if (!result.defined()) return;
    throw other_result(
        guards::failed(GuardKind::kRunShape, result_path(call, position), "undefined", "a tensor"));
  }
  const trace::Tensor& expected = recording().tensors[id];
  const trace::Buffer& buffer = recording().buffers[expected.buffer];
  const bool is_new =
      program_.buffers[expected.buffer].defined == static_cast<std::int64_t>(call.op);
  if (result.defined() && !is_new) return;
  const Placement placement = program_.buffers[expected.buffer].placement;
  if (!fits(result, expected, buffer) || !lies_where(result, buffer, placement)) {
    throw other_result(
        guards::result_mismatch(result_path(call, position), expected, buffer, result));
  }
  if (placement == Placement::kLanding) {
    live::copy_bytes(memory_.address(expected.buffer), result.device(), result.storage().data(),
                     result.device(), buffer.bytes);
    return;
  }
  memory_.adopt(expected.buffer, result.storage());
}

void CallResults::check_placed(const Call& call) const {
  for (std::size_t i = 0; i < call.placed.size(); ++i) {
    const trace::Tensor& expected = recording().tensors[call.placed[i]];
    const at::Tensor& result = memory_.tensor(call.placed[i]);
    if (lies_as(result, expected)) continue;
    throw other_result(guards::result_mismatch(result_path(call, i), expected,
                                               recording().buffers[expected.buffer], result));
  }
}

}  // namespace steptape::replayer
