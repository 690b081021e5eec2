#include "replayer/runtime/executor.h"

namespace steptape::replayer {

std::vector<trace::BufferId> Executor::written_buffers() const {
  std::vector<trace::BufferId> buffers;
  for (const std::size_t position : written()) buffers.push_back(bound()[position]);
  return buffers;
}

}  // namespace steptape::replayer
