#pragma once

#include <cstdint>

/// Products of small matrices: BLAS takes longer to look at its arguments than to multiply. Each
/// element is one chain of fused multiply-adds, and so are those of BLAS for many shapes: which, a
/// trial says.
namespace steptape::replayer::cpu::matrices {

/// c = a · b, or bias + a · b with the bias of each column, where c is `rows` by `columns` and the
/// elements of one of its rows lie side by side. Distances are in elements.
struct Product {
  std::int64_t rows, columns, depth;
  const float* a = nullptr;
  std::int64_t a_row, a_column;
  const float* b = nullptr;
  std::int64_t b_row, b_column;
  float* c = nullptr;
  std::int64_t c_row;
  const float* bias = nullptr;  ///< null: none
  float* packed = nullptr;      ///< room for b, as `pack` puts it there
};

/// The same arithmetic, compiled for one kind of processor.
struct Code {
  /// Elements of `packed` that `pack` fills; 0: b is read where it lies.
  std::int64_t (*room)(const Product& product);
  /// Puts b into the order in which `multiply` reads it. Asked for where there is room for it.
  void (*pack)(const Product& product);
  /// Whether no element became a NaN; which of several NaNs goes on is not told.
  bool (*multiply)(const Product& product);
};

extern const Code kAvx2;    ///< for processors with AVX2 and FMA
extern const Code kAvx512;  ///< with AVX-512 (F and VL), too

}  // namespace steptape::replayer::cpu::matrices
