#include "live/generator_state.h"

#include <mutex>

namespace steptape::live {

at::Tensor state_of(const at::Generator& generator) {
  at::Generator handle = generator;
  const std::lock_guard lock(handle.mutex());
  return handle.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace steptape::live
