#pragma once

#include <memory>

#include "replayer/planner/passes/passes.h"
#include "replayer/planner/program.h"
#include "replayer/runtime/executor.h"

namespace steptape::replayer::cpu {

/// replayer::plan for the kernels of the CPU.
Program plan(std::shared_ptr<const trace::Recording> recording, const PassOptions& options = {});

/// A program ready to run on the CPU: prepared arguments, one arena, the plan's own tensors. Runs
/// on the calling thread. Allocates the arena and the constants: throws c10::Error or
/// std::bad_alloc when memory is short, Error (data_loss) when a value does not fit its operator.
std::unique_ptr<Executor> make_executor(Program program, const GeneratorOf& generator);

}  // namespace steptape::replayer::cpu
