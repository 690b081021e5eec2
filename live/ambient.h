#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trace/model.h"

namespace steptape::live {

/// The torch-function modes of this thread: those of torch.device and torch.set_default_device,
/// which say where functions that make tensors put them, and others.
struct FunctionModes {
  bool others = false;
  /// Where tensors are made; as torch.device has it, "cuda" without an index being the current one.
  std::optional<c10::Device> default_device = {};
};

/// Modes are objects of Python: who has one tells them apart. Called only while there are some;
/// without it all are others.
void read_function_modes_by(FunctionModes (*read)());

/// The thread's and process's switches that ops depend on, as one flat value: cheap to take, cheap
/// to compare, so that a guard can do both at every step.
struct Ambient {
  static constexpr std::size_t kCount = 45;
  std::array<std::int32_t, kCount> values;
  std::optional<c10::Device> default_device;

  static Ambient current();
  friend bool operator==(const Ambient&, const Ambient&) = default;
  /// The value of the switch of this name, which must be one; 0 where it is off.
  std::int32_t operator[](std::string_view name) const;
  /// Every switch by name, for traces and verdicts.
  std::vector<trace::Fact> facts() const;
};

/// What the bits of a replay depend on and a process cannot change: torch version, CPU capability,
/// BLAS, mkldnn version, architecture.
std::vector<trace::Fact> environment();
/// Versions of Steptape, torch and the compiler.
std::vector<trace::Fact> producer();

}  // namespace steptape::live
