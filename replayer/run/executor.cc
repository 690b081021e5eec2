#include "replayer/run/executor.h"

#include "replayer/cpu/executor.h"
#include "replayer/passes/passes.h"

namespace steptape::replayer {

std::vector<trace::BufferId> Executor::written_buffers() const {
  std::vector<trace::BufferId> buffers;
  for (const std::size_t position : written()) buffers.push_back(bound()[position]);
  return buffers;
}

std::unique_ptr<Executor> make_executor(std::shared_ptr<const trace::Recording> recording,
                                        const GeneratorOf& generator) {
  return std::make_unique<cpu::Executor>(plan(std::move(recording), {}), generator);
}

}  // namespace steptape::replayer
