#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace steptape::replayer::cuda {

/// Which values a number may take.
enum class Domain : std::uint8_t {
  kReal,
  kIntegral,  ///< the op takes an integer
};

/// Whether ATen may launch other kernels for it than for most: `pow` and `norm` have special cases
/// for 0, 0.5, 1, 2 and 3, whatever the sign, `addmm` has 0 and 1.
bool is_special(double value);

/// The numbers of the captures from which slots are learned, the same for equal arguments: each
/// number alone at two other values, and all together at three more; before, between and after them
/// the recorded ones, so that what varies by itself shows. Other values have the sign and about the
/// size of the recorded one (of a zero: about 0.001), lie on the same side of 1 and within the
/// range of the same dtypes, are none that ATen has special cases for, and tell conversions apart
/// that agree for most numbers, as far as there are such values. A number that is not finite stays
/// as it is, and is found unused.
std::vector<std::vector<double>> sample_numbers(std::span<const double> recorded,
                                                std::span<const Domain> domains);

}  // namespace steptape::replayer::cuda
