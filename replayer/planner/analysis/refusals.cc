#include "replayer/planner/analysis/refusals.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "live/collectives.h"
#include "live/effects.h"
#include "live/operators.h"
#include "replayer/planner/analysis/lifetimes.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "trace/refusals.h"

namespace steptape::replayer {
namespace {

/// The first op of each operator that this process lacks, knows by another schema, or may not call.
void refuse_operators(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  std::set<trace::Index> seen;
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    if (!seen.insert(recording.ops[i].op).second) continue;
    const trace::Operator& recorded = recording.operator_of(recording.ops[i]);
    const auto here = live::find_operator(recorded);
    const auto refuse = [&](std::string message) {
      refusals.push_back(
          trace::refusal_at(recording, i, RefusalCode::kUnreplayableOp, std::move(message)));
    };
    if (!here) {
      refuse("`" + recorded.full_name() + "` does not exist in this torch");
    } else if (const std::string schema = live::describe(*here).schema; schema != recorded.schema) {
      refuse("`" + recorded.full_name() + "` was recorded as `" + recorded.schema +
             "`; this torch has `" + schema + "`");
    } else if (!live::effects_of(*here).is_replayable()) {
      refuse("`" + recorded.full_name() + "` is not an op that a plan may call: it " +
             std::string(words_of(live::effects_of(*here).reach)));
    } else if (recording.ops[i].inputs.size() != here->schema().arguments().size() ||
               recording.ops[i].outputs.size() != here->schema().returns().size()) {
      refuse("`" + recorded.full_name() +
             "` has other numbers of arguments or results than its schema");
    }
  }
}

/// The tensor that the op is known to return as it was given it.
trace::TensorId returned_argument(const c10::FunctionSchema& schema, const trace::Op& op) {
  const live::Exception* row = live::find_exception(schema.name(), live::ExceptionKind::kReturns);
  const auto at =
      row == nullptr ? std::nullopt : schema.argumentIndexWithName(std::string(row->arguments));
  return at ? tensor_in(op.inputs[*at]) : trace::kNoTensor;
}

/// An op that returns memory it was given, without saying so, cannot be told from a copy by its
/// schema.
void refuse_hidden_aliases(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const trace::Op& op = recording.ops[i];
    const auto handle = live::find_operator(recording.operator_of(op));
    const auto& schema = handle->schema();
    const live::Effects& effects = live::effects_of(*handle);
    if (effects.is_view || effects.is_inplace_view || effects.is_collective()) continue;
    const trace::TensorId returned = returned_argument(schema, op);
    for (std::size_t r = 0; r < op.outputs.size(); ++r) {
      if (schema.returns()[r].alias_info() != nullptr) continue;
      bool hidden = false;
      for_each_tensor(op.outputs[r], [&](trace::TensorId id) {
        if (id == trace::kNoTensor || id == returned) return;
        const Lifetime& lifetime = lifetimes[recording.tensors[id].buffer];
        hidden |= lifetime.defined < static_cast<std::int64_t>(i);
      });
      if (!hidden) continue;
      refusals.push_back(trace::refusal_at(
          recording, i, RefusalCode::kUnreplayableOp,
          "`" + recording.operator_of(op).full_name() +
              "` returned memory that it was given, which its schema does not say"));
      return;
    }
  }
}

void refuse_devices(const trace::Recording& recording, WhyNoBackend why_no_backend,
                    std::vector<Refusal>& refusals) {
  const trace::Buffer* first = nullptr;
  for (const trace::Buffer& buffer : recording.buffers) {
    if (buffer.device.kind == trace::DeviceKind::kCpu) continue;
    const auto path_of = [](const trace::Buffer& of) {
      return of.path.empty() ? "" : " (" + of.path + ")";
    };
    const std::string why = first == nullptr ? why_no_backend(buffer.device.kind) : "";
    if (!why.empty()) {
      refusals.push_back(trace::make_refusal(
          RefusalCode::kDevice, "a tensor of the step lies on " + text_of(buffer.device) +
                                    path_of(buffer) +
                                    ", where this process replays nothing: " + why));
      return;
    }
    if (first == nullptr) first = &buffer;
    if (buffer.device == first->device) continue;
    refusals.push_back(trace::make_refusal(
        RefusalCode::kDevice, "tensors of the step lie on " + text_of(first->device) +
                                  path_of(*first) + " and on " + text_of(buffer.device) +
                                  path_of(buffer) + "; a plan runs on one device"));
    return;
  }
}

/// A collective of tensors on a device is given to a stream of its group's.
void refuse_collectives_on_devices(const trace::Recording& recording,
                                   std::vector<Refusal>& refusals) {
  const std::vector<trace::Index> collectives = live::collectives_of(recording);
  const auto is_on_device = [](const trace::Buffer& buffer) {
    return buffer.device.kind != trace::DeviceKind::kCpu;
  };
  if (collectives.empty() || std::ranges::none_of(recording.buffers, is_on_device)) return;
  refusals.push_back(trace::refusal_at(recording, collectives.front(), RefusalCode::kDevice,
                                       "steps on a device are not replayed with collectives"));
}

/// cuDNN's benchmark mode takes the kernel that was fastest, which another time is another one,
/// with other bits.
void refuse_choice_by_time(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  const bool is_on_device = std::ranges::any_of(recording.buffers, [](const trace::Buffer& buffer) {
    return buffer.device.kind == trace::DeviceKind::kCuda;
  });
  const auto is_on = [&](const char* name) {
    const auto fact = std::ranges::find(recording.ambient, name, &trace::Fact::name);
    return fact != recording.ambient.end() && fact->value == "on";
  };
  if (!is_on_device || !is_on("cudnn") || !is_on("cudnn_benchmark")) return;
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    const std::string& name = recording.operator_of(recording.ops[i]).name;
    if (name.find("convolution") == std::string::npos) continue;
    refusals.push_back(trace::refusal_at(
        recording, i, RefusalCode::kDevice,
        "`" + name +
            "` under cuDNN's benchmark mode, which chooses kernels by their times; set "
            "torch.backends.cudnn.benchmark = False "
            "(at::globalContext().setBenchmarkCuDNN(false))"));
    return;
  }
}

/// Bytes that the host made inside the step must be in the recording: nobody makes them again.
void refuse_missing_constants(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  for (const trace::Buffer& buffer : recording.buffers) {
    const bool host_made = buffer.role == trace::Role::kConstant && buffer.path.empty();
    if (!host_made || buffer.bytes == 0 || buffer.content) continue;
    refusals.push_back(trace::make_refusal(
        RefusalCode::kHostTensorVaries,
        "a tensor of " + std::to_string(buffer.bytes) +
            " bytes that the host made inside the step is too large to be kept"));
    return;
  }
}

/// Whether a gradient, which was `entry` before the step, lies in its own memory in a way that a
/// replay can lay it out.
bool is_its_own(const trace::Recording& recording, const trace::ExitGradient& gradient,
                trace::TensorId entry) {
  if (entry == trace::kNoTensor) return false;
  if (entry == gradient.tensor) return true;
  const trace::Tensor& before = recording.tensors[entry];
  const trace::Tensor& after = recording.tensors[gradient.tensor];
  return recording.buffers[after.buffer].path == gradient.path() && before.buffer == after.buffer &&
         before.dtype == after.dtype && before.conj == after.conj && before.neg == after.neg;
}

/// A gradient that ends up in memory of another tracked tensor would be bound twice, unless it lies
/// where it lay before the step: one of several views of one memory.
void refuse_shared_gradients(const trace::Recording& recording, std::vector<Refusal>& refusals) {
  const std::vector<Lifetime> lifetimes = lifetimes_of(recording);
  std::unordered_map<std::string_view, trace::TensorId> at_entry;
  for (const trace::Tracked& tracked : recording.tracked) {
    at_entry.emplace(tracked.path, tracked.tensor);
  }
  for (const trace::ExitGradient& gradient : recording.exit_gradients) {
    if (gradient.tensor == trace::kNoTensor || gradient.is_memory) continue;
    const trace::BufferId id = recording.tensors[gradient.tensor].buffer;
    if (lifetimes[id].made_inside) continue;
    const trace::Buffer& buffer = recording.buffers[id];
    const auto entry = at_entry.find(gradient.path());
    if (entry != at_entry.end() && is_its_own(recording, gradient, entry->second)) continue;
    refusals.push_back(trace::make_refusal(RefusalCode::kReboundTensor,
                                           "the gradient of " + gradient.parameter +
                                               " lies in memory that is not its own" +
                                               (buffer.path.empty() ? "" : ": " + buffer.path)));
    return;
  }
}

}  // namespace

std::vector<Refusal> refusals_of(const trace::Recording& recording, WhyNoBackend why_no_backend) {
  std::vector<Refusal> refusals = recording.refusals;
  refuse_optimizers(recording, refusals);
  refuse_devices(recording, why_no_backend, refusals);
  refuse_choice_by_time(recording, refusals);
  refuse_collectives_on_devices(recording, refusals);
  refuse_missing_constants(recording, refusals);
  const std::size_t before = refusals.size();
  refuse_operators(recording, refusals);
  if (refusals.size() != before || !recording.refusals.empty()) return refusals;
  refuse_hidden_aliases(recording, refusals);
  refuse_shared_gradients(recording, refusals);
  return refusals;
}

}  // namespace steptape::replayer
