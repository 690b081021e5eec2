#pragma once

#include <cstdint>

/// Products of small matrices: BLAS takes longer to look at its arguments than to multiply. Each
/// element is one chain of fused multiply-adds, and so are those of BLAS for many shapes: which, a
/// trial says. Compiled for AVX2 and FMA: for processors that have them, and sharing no code with
/// other files.
namespace steptape::replayer::cpu::matrices {

/// c = a · b, or bias + a · b with the bias of each column, where c is `rows` by `columns` and the
/// elements of one of its rows lie side by side. Distances are in elements.
struct Product {
  std::int64_t rows, columns, depth;
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row, b_column;
  float* c;
  std::int64_t c_row;
  const float* bias;  ///< null: none
  float* scratch;     ///< room for `scratch_of` elements
};

/// Room that a product of such a `b` needs.
std::int64_t scratch_of(const Product& product);

/// Whether no element became a NaN; which of several NaNs goes on is not told.
bool multiply(const Product& product);

}  // namespace steptape::replayer::cpu::matrices
