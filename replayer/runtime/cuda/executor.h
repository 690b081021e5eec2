#pragma once

#include <memory>

#include "replayer/runtime/backends.h"
#include "replayer/runtime/executor.h"

namespace steptape::replayer::cuda {

/// A program ready to run on a CUDA device, as graphs with what cannot be in them between. The
/// first run captures: it runs all once, op by op on a stream of its own, undoes that, captures,
/// and goes on as every run does. Digests of ops in graphs come from that run op by op, and so only
/// from a run that captures. Runs are given to the caller's current stream, and return when
/// the host has no more to do for them.
/// Throws Error (unsupported) for what no plan on a device can hold, Error (data_loss) when a value
/// does not fit its operator.
std::unique_ptr<Executor> make_executor(std::shared_ptr<const trace::Recording> recording,
                                        const GeneratorOf& generator,
                                        const ExecutorOptions& options);

}  // namespace steptape::replayer::cuda
