#include "steptape/refusal.h"

#include <fmt/format.h>

#include <array>

#include "steptape/error.h"

namespace steptape {
namespace {

struct Row {
  RefusalCode code;
  std::string_view name;
  std::string_view remedy;
};

using enum RefusalCode;

constexpr std::array kRows = {
    Row{kHostRead, "host_read",
        "Move item(), is_nonzero() or the copy to the host behind the step: return the tensor "
        "and read it outside"},
    Row{kDataDependentShape, "data_dependent_shape",
        "Keep shapes fixed: use where() or a mask in place of nonzero(), masked_select() or "
        "boolean indexing, or do that part outside the step"},
    Row{kUntrackedWrite, "untracked_write",
        "Track what owns the tensor with session.track(name, object) before the first call, or "
        "return the value instead of writing it in place"},
    Row{kUnwrittenRead, "unwritten_read",
        "Fill the tensor with a torch op inside the step (zeros() in place of empty()), or track "
        "it or pass it as an argument if it is made outside"},
    Row{kWrittenOutside, "written_outside",
        "Do not write through NumPy, data_ptr() or an extension inside the step: write with torch "
        "ops such as copy_(), or fill the tensor before the step and pass it in"},
    Row{kUnannotatedWrite, "unannotated_write",
        "Mark the written argument in the op's schema, as in `Tensor(a!) self`, or call a variant "
        "of the op that returns a new tensor"},
    Row{kHostTensorVaries, "host_tensor_varies",
        "Make torch.tensor(...) or from_blob() before the step and pass it as an argument"},
    Row{kOutsideTensorVaries, "outside_tensor_varies",
        "Pass the tensor as an argument of the step, or track the object that holds it"},
    Row{kOverlappingMemory, "overlapping_memory",
        "Give each storage its own memory: clone() tensors made with from_blob() or from_numpy() "
        "over the same bytes, or make them views of one tensor"},
    Row{kEscapedBuffer, "escaped_buffer",
        "Return the tensor from the step, or copy_() its values into a tracked tensor"},
    Row{kReboundTensor, "rebound_tensor",
        "Write the tracked tensor in place with copy_() under NoGradGuard instead of assigning a "
        "new tensor to it, and keep resize_(), set_() and module.to() outside the step"},
    Row{kTensorKind, "tensor_kind",
        "Use dense strided tensors inside the step: convert with to_dense() or dequantize(), or "
        "leave this part outside the step"},
    Row{kDevice, "device",
        "Move the model and its inputs to the CPU or to a CUDA device that this build of Steptape "
        "serves"},
    Row{kDispatchMode, "dispatch_mode",
        "Leave the dispatch mode, functorch transform or tracer before calling the step, or wrap "
        "the step outside of it"},
    Row{kGeneratorSeek, "generator_seek",
        "Call manual_seed(), set_rng_state() or fork_rng() outside the step, or pass "
        "preserve_rng_state=False to checkpoint()"},
    Row{kUntrackedGenerator, "untracked_generator",
        "Track the generator with session.track(name, generator), or draw from the default one"},
    Row{kUnreplayableOp, "unreplayable_op",
        "Replace the op by aten ops, or call it outside the step"},
    Row{kUnstableOpStream, "unstable_op_stream",
        "Make the step issue the same ops every time: wrap each branch as a step of its own, and "
        "pass a fixed set of shapes"},
    Row{kScalarVaries, "scalar_varies",
        "Pass the number to the step as a 0-dim tensor argument, or keep it for many steps: a "
        "hyperparameter or number argument is guarded by value, one variant for each"},
    Row{kOptimizerUnsupported, "optimizer_unsupported",
        "Call optimizer.step() outside the wrapped step, so that forward and backward replay "
        "alone, or train with SGD"},
    Row{kHyperparameterChanged, "hyperparameter_changed",
        "Move scheduler.step() and other changes of hyperparameters out of the step"},
    Row{kUnconsumedGraph, "unconsumed_graph",
        "Call backward() inside the step, return detach() of the result, or run the step under "
        "NoGradGuard"},
    Row{kTrialDiverged, "trial_diverged",
        "Look for state that the step changes behind torch's back and track it; if there is none, "
        "report this with the trace file"},
    Row{kAuditDiverged, "audit_diverged",
        "Look for host state, such as a counter or a captured number, that only eager steps "
        "advance; pass it as an argument, or move it out of the step"},
    Row{kTooManyVariants, "too_many_variants",
        "Pad inputs to few shapes or drop the last short batch, or raise Options::max_variants"},
    Row{kNestedStep, "nested_step",
        "Wrap only the outermost function, or call the inner one without its wrapper"},
    Row{kReplayThrew, "replay_threw",
        "Read the message for what failed, free memory or mend the device if it says so, and call "
        "session.invalidate() to record the step anew"},
    Row{kNoInterceptor, "no_interceptor",
        "Create the session before another library takes the dispatch key, or choose the other "
        "interceptor in Options"},
    Row{kRecordingFailed, "recording_failed",
        "Report this with the message and the versions of Steptape and torch; the step itself ran "
        "eagerly and its results are right"},
};

const Row* row_of(RefusalCode code) noexcept {
  for (const Row& row : kRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

std::string_view name_of(RefusalCode code) noexcept {
  const Row* row = row_of(code);
  return row ? row->name : "unknown";
}

std::string_view remedy_of(RefusalCode code) noexcept {
  const Row* row = row_of(code);
  return row ? row->remedy : "Update Steptape: this refusal comes from a newer version";
}

RefusalCode refusal_code_of(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.code;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no refusal is called `{}`", name));
}

std::string Refusal::text() const {
  std::string where;
  auto add = [&where](std::string_view part) {
    if (part.empty()) return;
    if (!where.empty()) where += ", ";
    where += part;
  };
  if (op_index >= 0) {
    add(op.empty() ? fmt::format("op {}", op_index) : fmt::format("op {} {}", op_index, op));
  } else {
    add(op);
  }
  add(module);
  add(place);
  return fmt::format("{}: {}{}{}{}. Remedy: {}", name_of(code), message, where.empty() ? "" : " [",
                     where, where.empty() ? "" : "]", remedy());
}

}  // namespace steptape
