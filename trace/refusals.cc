#include "trace/refusals.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "steptape/error.h"
#include "steptape/refusal.h"

namespace steptape::trace {

Refusal make_refusal(RefusalCode code, std::string message) {
  Refusal refusal;
  refusal.code = code;
  refusal.message = std::move(message);
  return refusal;
}

Refusal refusal_at(const Recording& recording, std::size_t op, RefusalCode code,
                   std::string message) {
  const Op& found = recording.ops[op];
  Refusal refusal = make_refusal(code, std::move(message));
  refusal.op = recording.operator_of(found).full_name();
  refusal.op_index = static_cast<std::int64_t>(op);
  refusal.module = recording.module_path(found.module);
  refusal.place = recording.scope_of(found);
  return refusal;
}

}  // namespace steptape::trace

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
        "Return the value from the step or look at it with session.observe(); keep decisions on "
        "tensors: where(), clamp() or a mask; or set Options::host_reads to kObserve if the step "
        "only looks"},
    Row{kDataDependentShape, "data_dependent_shape",
        "Keep shapes fixed with where() or a mask in place of nonzero(), masked_select() or "
        "boolean indexing, or do that part before the step and pass its result"},
    Row{kUntrackedWrite, "untracked_write",
        "Track the tensor or what owns it with session.track(name, object) before the first "
        "call of a step, or return the new value instead of writing it in place"},
    Row{kUnwrittenRead, "unwritten_read",
        "Fill the tensor with an op inside the step (zeros() in place of empty()), or make "
        "it before the step and pass it as an argument"},
    Row{kWrittenOutside, "written_outside",
        "Write with torch ops such as copy_() instead of data_ptr(), NumPy or an extension, "
        "or write between steps, where arguments and tracked tensors may change freely"},
    Row{kUnannotatedWrite, "unannotated_write",
        "Mark the written argument in the op's schema, as in `Tensor(a!) self`, or let the "
        "op return a new tensor"},
    Row{kHostTensorVaries, "host_tensor_varies",
        "Make the tensor before the step and pass it as an argument; draw random numbers "
        "with torch's generator"},
    Row{kOutsideTensorVaries, "outside_tensor_varies",
        "Pass the tensor as an argument of the step, or track the object that holds it"},
    Row{kOverlappingMemory, "overlapping_memory",
        "Use a view of one tensor, or clone() what from_blob() or from_numpy() laid over the "
        "same bytes"},
    Row{kEscapedBuffer, "escaped_buffer",
        "Return the tensor from the step, or make one of its shape before the step, track it "
        "and copy_() into it"},
    Row{kReboundTensor, "rebound_tensor",
        "Write the tracked tensor in place with copy_() under NoGradGuard instead of "
        "assigning a new one, and keep resize_(), set_() and module.to() outside the step"},
    Row{kTensorKind, "tensor_kind",
        "Use dense strided tensors inside the step (to_dense(), dequantize()), or leave this "
        "part outside the step"},
    Row{kDevice, "device",
        "Move model and data to the CPU, or call the function without wrapping it"},
    Row{kDispatchMode, "dispatch_mode",
        "Leave the dispatch mode, functorch transform or tracer before calling the step, or "
        "wrap the function that enters it"},
    Row{kGeneratorSeek, "generator_seek",
        "Call manual_seed(), set_state() or fork_rng() between steps instead of inside one"},
    Row{kUntrackedGenerator, "untracked_generator",
        "Track the generator with session.track(name, generator), or draw from the default "
        "one"},
    Row{kUnreplayableOp, "unreplayable_op",
        "Call the op outside the step, or compute the same with torch's own ops"},
    Row{kUnstableOpStream, "unstable_op_stream",
        "Make the step issue the same ops every time: wrap each branch as a step of its own, "
        "and pad inputs to few shapes"},
    Row{kScalarVaries, "scalar_varies",
        "Declare the number with session.host(name, function), or pass it to the step as an "
        "argument; it must enter the op as it is, or as a 0-dim tensor"},
    Row{kOptimizerUnsupported, "optimizer_unsupported",
        "Call session.update(optimizer) in place of optimizer.step(), or train with an optimizer "
        "of torch::optim other than LBFGS"},
    Row{kHyperparameterChanged, "hyperparameter_changed",
        "Move scheduler.step() and other changes of hyperparameters after the step"},
    Row{kUnconsumedGraph, "unconsumed_graph",
        "Call backward() inside the step, detach() arguments and results, or run the step under "
        "NoGradGuard"},
    Row{kTrialDiverged, "trial_diverged",
        "Look for what the step does besides torch ops (docs/blind_spots.md); if there is "
        "nothing, please report it with the trace"},
    Row{kAuditDiverged, "audit_diverged",
        "Look for state that only eager steps advance, such as a counter or a schedule of "
        "the step's own, and pass it as an argument (docs/blind_spots.md)"},
    Row{kTooManyVariants, "too_many_variants",
        "Pad inputs to few shapes, pass changing numbers as tensors, or raise "
        "Options::max_variants"},
    Row{kNestedStep, "nested_step",
        "Nothing, if the outer step replays; where it runs eagerly, the inner one has a life of "
        "its own"},
    Row{kReplayThrew, "replay_threw",
        "Mend what the message names, and call session.invalidate(why) to record the step "
        "anew at once"},
    Row{kNoInterceptor, "no_interceptor",
        "Choose Interception::kDispatchMode in Options::interception, which needs no "
        "dispatch key"},
    Row{kRecordingFailed, "recording_failed",
        "Report this with the message and the versions of Steptape and torch; the step "
        "itself ran eagerly and its results are right"},
    Row{kTrialSkipped, "trial_skipped",
        "Free memory, as much as the parameters and state that the step writes take, or set "
        "Options::verify.first to false to trust plans without a trial"},
    Row{kHostEffect, "host_effect",
        "Do it between steps; or return or observe the value it depends on, and declare numbers "
        "that the step counts up by itself as host values"},
    Row{kHostRandom, "host_random",
        "Draw with torch's generator, or declare the number as a host value, which is called once "
        "a step in replays too"},
    Row{kOpaqueArgument, "opaque_argument",
        "Pass tensors, numbers, strings and containers of them; let the step reach other objects "
        "by capture"},
    Row{kNondeterministicOp, "nondeterministic_op",
        "Use a deterministic op (torch.use_deterministic_algorithms names some), or one thread; or "
        "leave Options::determinism at kListed"},
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
