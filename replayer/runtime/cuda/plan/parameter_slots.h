#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replayer/runtime/cuda/plan/conversion.h"

namespace steptape::replayer::cuda {

/// One kernel node of a capture, as its parameters lie in memory.
struct KernelImage {
  const void* function = nullptr;
  std::array<unsigned, 3> grid = {1, 1, 1};
  std::array<unsigned, 3> block = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::vector<std::byte>> parameters;  ///< one block a kernel parameter
};

/// What an op's kernel nodes were when its numbers were these.
struct ParameterSample {
  std::vector<double> numbers;
  std::vector<KernelImage> nodes;
};

/// Where a number enters.
struct Slot {
  std::size_t node = 0;
  std::size_t parameter = 0;
  std::size_t offset = 0;  ///< in bytes, in the parameter
  std::size_t number = 0;
  Conversion conversion = Conversion::kFloat32;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// Why numbers may not be put.
struct Objection {
  std::size_t number = 0;
  std::string why;  ///< "it is 0, which no capture was made with"
};

struct SlotSearch;

/// Where the host numbers of an op enter the parameters of its kernels, learned from captures with
/// other values of them (sample_numbers). A capture bakes numbers in; with slots the same graph
/// holds for others. Made once an op and device, used before each launch; it keeps no memory of
/// the samples. Bytes are those of a little-endian host.
class ParameterSlots {
 public:
  /// Every byte that differs between samples is either in exactly one slot, which gives its bytes
  /// in each sample, or noise: it differs between samples of equal numbers, as the address of a
  /// temporary does. The more such samples there are, the more noise is known. All samples must
  /// hold as many numbers; throws Error (internal) otherwise, and where there are none.
  static SlotSearch find(std::span<const ParameterSample> samples);

  /// By node, parameter and offset.
  const std::vector<Slot>& slots() const { return slots_; }
  /// Numbers that no byte depends on: they may have decided something on the host, or have entered
  /// a node that is not a kernel.
  const std::vector<std::size_t>& unused() const { return unused_; }

  /// Whether `numbers` are such that the samples say what the kernels would get. Not so where ATen
  /// might launch other kernels (another sign, 0, 0.5, 1, 2, 3, unless sampled), where a conversion
  /// gives no finite number, where two conversions differ that gave the same in every sample, and
  /// where one shows that was the same constant in every sample, so that nobody knows where it
  /// enters. Allocates nothing but for an objection.
  std::optional<Objection> objection(std::span<const double> numbers) const;

  /// Writes what `numbers` give into the parameters of `nodes`, and returns which nodes got other
  /// bytes, in order. There must be no objection to the numbers, and the nodes must be those of a
  /// capture of the sampled op; throws Error (internal) where a slot does not lie in them.
  std::vector<std::size_t> put(std::span<const double> numbers, std::span<KernelImage> nodes) const;

 private:
  class Search;
  /// Another way to explain the bytes of a slot, which holds while both give the same word.
  struct Rival {
    Slot slot;
    Slot other;              ///< in the same eight bytes
    std::uint64_t word = 0;  ///< these, in the first sample
  };
  /// What was the same in every sample: it may stand anywhere.
  struct Hidden {
    Conversion conversion = Conversion::kFloat32;
    std::uint64_t bits = 0;
  };
  struct Number {
    std::vector<double> sampled;  ///< each value once
    std::vector<Conversion> used;
    std::vector<Hidden> hidden;
  };

  std::optional<std::string> objection(const Number& number, double value) const;

  std::vector<Slot> slots_;
  std::vector<Rival> rivals_;
  std::vector<Number> numbers_;
  std::vector<std::size_t> unused_;
};

/// What a search gives: slots, or the reason why there are none.
struct SlotSearch {
  std::optional<ParameterSlots> slots;
  std::string reason;
};

}  // namespace steptape::replayer::cuda
