#pragma once

#include <ATen/core/Generator.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace steptape::tests::simulated {

/// Takes as many draws from a CUDA generator (the default one where none is given) as a kernel over
/// `elements` does, by the formula of ATen's distribution kernels.
at::PhiloxCudaState take_draws(const std::optional<at::Generator>& generator,
                               std::int64_t elements);

/// The seed for a CPU generator that stands for a Philox state. Reads the state where a kernel
/// does: of a captured one from device memory, at the time of the call.
std::uint64_t seed_of(std::span<const std::byte> philox_state);

/// Runs `work` while the default CPU generator is seeded so, then gives that its state back: for
/// operators that draw without taking a generator.
void with_default_generator_seeded(std::uint64_t seed, const std::function<void()>& work);

}  // namespace steptape::tests::simulated
