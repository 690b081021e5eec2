#include "live/generator_state.h"

#include <ATen/Context.h>

#include <mutex>

#include "live/tensors.h"

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

std::string default_generator_path(const trace::Device& device) {
  return device.kind == trace::DeviceKind::kCpu ? "default" : "default." + text_of(device);
}

at::Generator default_generator(const trace::Device& device) {
  return at::globalContext().defaultGenerator(device_of(device));
}

}  // namespace steptape::live
