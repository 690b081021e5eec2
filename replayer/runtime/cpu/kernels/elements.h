#pragma once

#include <cstdint>

/// Arithmetic on float32 elements that lie side by side, with the roundings of ATen's vectorised
/// kernels. Where ATen's compiler contracted a product and a sum (add, addcmul, lerp),
/// there is one rounding here too; nowhere else. What an element becomes does not depend on its
/// place, so a stretch may be computed piece by piece.
///
/// Compiled for AVX2 and FMA: for processors that have them, and sharing no code with other files.
namespace steptape::replayer::cpu::elements {

struct Operands {
  float* out;  ///< may be one of `in`, and must not overlap it otherwise
  const float* in[3];
  float number[2];
};
using Function = void(const Operands& operands, std::int64_t count);

Function copy;             ///< in0
Function fill;             ///< number0
Function negate;           ///< -in0
Function reciprocal;       ///< 1 / in0
Function relu;             ///< in0 < 0 ? 0 : in0
Function add;              ///< in0 + number0 · in1, rounded once
Function add_number;       ///< in0 + number0 · number1, rounded once
Function subtract;         ///< in0 - number0 · in1, rounded once
Function subtract_number;  ///< in0 - number0 · number1, rounded once
Function scale;            ///< in0 · number0
Function divide;           ///< in0 / in1
Function divide_by;        ///< in0 / number0
Function addcmul;          ///< in0 + (number0 · in1) · in2, the sum rounded with the last product
Function addcdiv;          ///< in0 + (number0 · in1) / in2
Function lerp;             ///< in0 + number0 · (in1 - in0), rounded once; from 0.5 on from in1
Function mask_below;       ///< in1 <= number0 ? 0 : in0
Function sigmoid_slope;    ///< (in0 · (1 - in1)) · in1

/// Of both signs.
std::int64_t count_zeros(const float* in, std::int64_t count);
/// `out` is `in` with ones in place of zeros.
void put_ones_for_zeros(const float* in, float* out, std::int64_t count);
/// `out` has the zeros of `in`, which it may be, and else what `others` has.
void put_zeros_back(const float* in, const float* others, float* out, std::int64_t count);

}  // namespace steptape::replayer::cpu::elements
