#include "replayer/cpu/run_log.h"

#include <algorithm>
#include <utility>

#include "live/op_digest.h"

namespace steptape::replayer::cpu {
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

using Span = std::pair<std::uintptr_t, std::uintptr_t>;

/// What an element-wise call wrote: its tensors have no gaps.
std::vector<Span> written_by(const Call& call, const Memory& memory) {
  std::vector<at::Tensor> tensors = live::written_tensors(call.callee, call.arguments);
  for (const trace::TensorId id : call.placed) tensors.push_back(memory.tensor(id));
  std::vector<Span> spans;
  for (const at::Tensor& tensor : tensors) {
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    spans.emplace_back(begin, begin + tensor.nbytes());
  }
  return spans;
}

bool overlap(const std::vector<Span>& some, const std::vector<Span>& others) {
  return std::ranges::any_of(some, [&](const Span& a) {
    return std::ranges::any_of(
        others, [&](const Span& b) { return a.first < b.second && b.first < a.second; });
  });
}

}  // namespace

void RunLog::add_digests(std::span<const Call> stage, const Memory& memory,
                         torch::jit::Stack& stack) {
  if (stage.size() == 1) {
    if (stage[0].kernel) put_results(stage[0], memory, stack);
    return add_digest(stage[0], stack);
  }
  // of calls that were done in one pass, those whose results no later one wrote over: buffers that
  // do not live at the same time share memory
  std::vector<Span> written;
  for (std::size_t i = stage.size(); i-- > 0;) {
    const std::vector<Span> own = written_by(stage[i], memory);
    const bool is_over = overlap(own, written);
    written.insert(written.end(), own.begin(), own.end());
    if (is_over) continue;
    put_results(stage[i], memory, stack);
    add_digest(stage[i], stack);
  }
}

void RunLog::add_digest(const Call& call, const torch::jit::Stack& stack) {
  // the results of an out variant are arguments that it writes: told apart, they are results
  // again
  std::vector<at::Tensor> written = live::written_tensors(call.callee, call.arguments);
  written.resize(written.size() - std::min(written.size(), call.placed.size()));
  (*digests_)[call.op] = live::op_digest(stack, written);
}

void RunLog::add_time(std::span<const Call> stage, std::uint64_t ns) {
  StageTime time{{}, reason_of(stage.front()), ns};
  for (const Call& call : stage) time.ops.push_back(call.op);
  times_->push_back(std::move(time));
}

std::string reason_of(const Call& call) {
  if (call.kernel) return {};
  return c10::str(call.callee.operator_name(), ": ", call.no_kernel);
}

}  // namespace steptape::replayer::cpu
