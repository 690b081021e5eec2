#include "tests/simulated_cuda/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace steptape::tests::simulated {
namespace {

/// SplitMix64's finaliser.
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

at::PhiloxCudaState take_draws(const std::optional<at::Generator>& generator,
                               std::int64_t elements) {
  constexpr std::uint64_t kBlock = 256, kBlocksAtOnce = 132 * (2048 / 256), kUnrolled = 4;
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(elements, 1));
  const std::uint64_t blocks = std::min((count + kBlock - 1) / kBlock, kBlocksAtOnce);
  const std::uint64_t increment = ((count - 1) / (kBlock * blocks * kUnrolled) + 1) * kUnrolled;
  auto* const impl = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator());
  const std::lock_guard lock(impl->mutex_);
  return impl->philox_cuda_state(increment);
}

std::uint64_t seed_of(std::span<const std::byte> philox_state) {
  at::PhiloxCudaState state;
  std::memcpy(static_cast<void*>(&state), philox_state.data(), sizeof(state));
  const std::uint64_t seed =
      state.captured_ ? static_cast<std::uint64_t>(*state.seed_.ptr) : state.seed_.val;
  const std::uint64_t offset =
      state.captured_ ? static_cast<std::uint64_t>(*state.offset_.ptr) + state.offset_intragraph_
                      : state.offset_.val;
  return mixed(mixed(seed) + offset);
}

void with_default_generator_seeded(std::uint64_t seed, const std::function<void()>& work) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Generator saved = generator.clone();
  generator.set_current_seed(seed);
  work();
  generator.set_state(saved.get_state());
}

}  // namespace steptape::tests::simulated
