#include "replayer/cpu/stages.h"

#include <algorithm>
#include <utility>

#include "replayer/cpu/kernels/chain.h"
#include "replayer/cpu/kernels/elementwise.h"
#include "replayer/cpu/kernels/preparation.h"

namespace steptape::replayer::cpu {
namespace {

/// What an op in place writes; empty for one that makes its results.
std::vector<at::Tensor> written_in_place(const Call& call) {
  const c10::FunctionSchema& schema = call.callee.schema();
  if (schema.arguments().empty() || call.arguments.empty()) return {};
  const auto* alias = schema.arguments()[0].alias_info();
  if (alias == nullptr || !alias->isWrite()) return {};
  const c10::IValue& self = call.arguments[0];
  if (self.isTensor()) return {self.toTensor()};
  return self.isTensorList() ? self.toTensorVector() : std::vector<at::Tensor>();
}

/// First bytes of constants that no formula and no op writes.
std::vector<const void*> literals_of(const Program& program, const Memory& memory,
                                     const std::vector<trace::BufferId>& refilled) {
  const trace::Recording& recording = *program.recording;
  std::vector<bool> is_literal(program.buffers.size(), false);
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    is_literal[id] =
        program.buffers[id].placement == Placement::kConstant && recording.buffers[id].bytes != 0;
  }
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op == trace::kNone && site.buffer < is_literal.size()) is_literal[site.buffer] = false;
  }
  for (const trace::BufferId id : refilled) is_literal[id] = false;
  std::vector<const void*> literals;
  for (trace::BufferId id = 0; id < is_literal.size(); ++id) {
    if (is_literal[id]) literals.push_back(memory.address(id));
  }
  return literals;
}

}  // namespace

void prepare_kernels(const Program& program, const Memory& memory,
                     const std::vector<trace::BufferId>& refilled, std::vector<Call>& calls) {
  const trace::Recording& recording = *program.recording;
  const std::vector<const void*> literals = literals_of(program, memory, refilled);
  std::vector<std::vector<trace::Index>> varying(recording.ops.size());
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op < varying.size()) varying[site.op].push_back(site.argument);
  }
  for (Call& call : calls) {
    if (call.adopts || call.read != trace::kNone) {
      call.no_kernel = call.adopts ? "its results are the user's" : "it gives the host a value";
      continue;
    }
    KernelSite site{call, std::vector<bool>(call.arguments.size(), false), {}, literals};
    for (const trace::Index argument : varying[call.op]) site.varies.at(argument) = true;
    for (const trace::TensorId id : call.placed) site.results.push_back(memory.tensor(id));
    if (call.placed.empty()) site.results = written_in_place(call);
    Preparation made = prepare(site);
    call.kernel = std::move(made.kernel);
    call.no_kernel = made.reason;
  }
}

std::vector<Stage> stages_of(const std::vector<Call>& calls, std::size_t border, Chains chains) {
  std::vector<Stage> stages;
  std::vector<const ElementwiseKernel*> run;
  const auto end_run = [&](std::size_t end) {
    if (run.size() > 1) {
      stages.push_back({end - run.size(), run.size(), chain(run)});
    } else if (!run.empty()) {
      stages.push_back({end - 1});
    }
    run.clear();
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i == border || chains == Chains::kNo) end_run(i);
    if (const auto* kernel = dynamic_cast<const ElementwiseKernel*>(calls[i].kernel.get())) {
      run.push_back(kernel);
      continue;
    }
    end_run(i);
    stages.push_back({i});
  }
  end_run(calls.size());
  return stages;
}

}  // namespace steptape::replayer::cpu
