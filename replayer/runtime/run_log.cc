#include "replayer/runtime/run_log.h"

#include <algorithm>
#include <utility>

#include "live/contents.h"
#include "live/op_digest.h"
#include "replayer/runtime/uses.h"

namespace steptape::replayer {
namespace {

/// What the dispatcher would have left on the stack.
void put_results(const Call& call, const Memory& memory, torch::jit::Stack& stack) {
  stack.clear();
  if (!call.placed.empty()) {
    for (const trace::TensorId id : call.placed) stack.emplace_back(memory.tensor(id));
  } else if (!call.callee.schema().returns().empty()) {
    stack.push_back(call.arguments.front());
  }
}

/// What a call wrote, now.
std::vector<Use> written_by(const Call& call, const Memory& memory) {
  std::vector<Use> uses;
  for (const at::Tensor& tensor : live::written_tensors(call.callee, call.arguments))
    uses.push_back(Use::of(tensor, true));
  for (const trace::TensorId id : call.placed) uses.push_back(Use::of(memory.tensor(id), true));
  return uses;
}

bool overlap(const std::vector<Use>& some, const Uses& others) {
  return std::ranges::any_of(some, [&](const Use& use) {
    bool found = false;
    others.for_each_conflict(use, [&](const Use&) { found = true; });
    return found;
  });
}

/// What a call left on the stack and in its arguments. The results of an out variant are arguments
/// that it writes: told apart, they are results again.
std::vector<at::Tensor> left_by(const Call& call, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> written = live::written_tensors(call.callee, call.arguments);
  written.resize(written.size() - std::min(written.size(), call.placed.size()));
  return live::left_tensors(stack, written);
}

}  // namespace

void RunLog::begin(const Inspection& inspection, std::size_t ops) {
  inspection_ = inspection;
  if (wants_digests()) inspection_.digests->assign(ops, std::nullopt);
  if (wants_times()) inspection_.times->clear();
}

void RunLog::add_digests(std::span<const Call> stage, const Memory& memory,
                         torch::jit::Stack& stack) {
  if (stage.size() == 1) {
    if (stage[0].kernel || stage[0].copies) put_results(stage[0], memory, stack);
    override_outputs(stage[0], stack);
    return add_digest(stage[0], stack);
  }
  // of calls that were done in one pass, those whose results no later one wrote over: buffers that
  // do not live at the same time share memory
  Uses written;
  for (std::size_t i = stage.size(); i-- > 0;) {
    const std::vector<Use> own = written_by(stage[i], memory);
    const bool is_over = overlap(own, written);
    for (const Use& use : own) written.add(use);
    if (is_over) continue;
    put_results(stage[i], memory, stack);
    add_digest(stage[i], stack);
  }
}

void RunLog::add_digest(const Call& call, const torch::jit::Stack& stack) {
  (*inspection_.digests)[call.op] = live::digest_of(left_by(call, stack));
}

void RunLog::override_outputs(const Call& call, const torch::jit::Stack& stack) {
  const auto overrides = std::ranges::find(inspection_.overrides, call.op, &Override::op);
  if (overrides == inspection_.overrides.end()) return;
  const std::vector<at::Tensor> left = left_by(call, stack);
  if (left.size() != overrides->left.size()) return;
  double difference = 0;
  const live::Unseen unseen;
  for (std::size_t i = 0; i < left.size(); ++i) {
    difference = std::max(difference, live::relative_difference(left[i], overrides->left[i]));
  }
  for (std::size_t i = 0; i < left.size(); ++i) left[i].copy_(overrides->left[i]);
  overrides->difference = difference;
}

void RunLog::add_time(std::span<const Call> stage, std::uint64_t ns) {
  StageTime time{{}, reason_of(stage.front()), ns};
  for (const Call& call : stage) time.ops.push_back(call.op);
  add_time(std::move(time));
}

std::string reason_of(const Call& call) {
  if (call.kernel) return {};
  return c10::str(call.callee.operator_name(), ": ", call.no_kernel);
}

}  // namespace steptape::replayer
