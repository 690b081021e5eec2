#include "replayer/runtime/cpu/kernels/elements.h"

namespace steptape::replayer::cpu::elements {
namespace {

/// Elements do not depend on each other: `out` is an operand as a whole or not at all.
template <typename Element>
inline __attribute__((always_inline)) void for_each(std::int64_t count, Element&& element) {
#if defined(__clang__)
// sanitizers leave no loop to vectorize
#pragma clang diagnostic ignored "-Wpass-failed"
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < count; ++i) element(i);
}

inline __attribute__((always_inline)) float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

}  // namespace

void copy(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  for_each(count, [=](std::int64_t i) { out[i] = a[i]; });
}

void fill(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = s; });
}

void negate(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  for_each(count, [=](std::int64_t i) { out[i] = -a[i]; });
}

void reciprocal(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  for_each(count, [=](std::int64_t i) { out[i] = 1.0F / a[i]; });
}

void relu(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  for_each(count, [=](std::int64_t i) { out[i] = a[i] < 0.0F ? 0.0F : a[i]; });
}

void add(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = fma(b[i], s, a[i]); });
}

void add_number(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float s = o.number[0];
  const float t = o.number[1];
  for_each(count, [=](std::int64_t i) { out[i] = fma(s, t, a[i]); });
}

void subtract(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  const float s = -o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = fma(b[i], s, a[i]); });
}

void subtract_number(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float s = o.number[0];
  const float t = -o.number[1];
  for_each(count, [=](std::int64_t i) { out[i] = fma(s, t, a[i]); });
}

void scale(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = a[i] * s; });
}

void divide(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  for_each(count, [=](std::int64_t i) { out[i] = a[i] / b[i]; });
}

void divide_by(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = a[i] / s; });
}

void addcmul(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  const float* const c = o.in[2];
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = fma(s * b[i], c[i], a[i]); });
}

void addcdiv(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  const float* const c = o.in[2];
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = a[i] + s * b[i] / c[i]; });
}

void lerp(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  const float s = o.number[0];
  if (__builtin_fabsf(s) < 0.5F) {
    for_each(count, [=](std::int64_t i) { out[i] = fma(s, b[i] - a[i], a[i]); });
  } else {
    for_each(count, [=](std::int64_t i) { out[i] = fma(s - 1.0F, b[i] - a[i], b[i]); });
  }
}

void mask_below(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  const float s = o.number[0];
  for_each(count, [=](std::int64_t i) { out[i] = b[i] <= s ? 0.0F : a[i]; });
}

void sigmoid_slope(const Operands& o, std::int64_t count) {
  float* const out = o.out;
  const float* const a = o.in[0];
  const float* const b = o.in[1];
  for_each(count, [=](std::int64_t i) { out[i] = a[i] * (1.0F - b[i]) * b[i]; });
}

std::int64_t count_zeros(const float* in, std::int64_t count) {
  std::int32_t zeros = 0;  // as wide as an element
  for (std::int64_t i = 0; i < count; ++i) zeros += in[i] == 0 ? 1 : 0;
  return zeros;
}

void put_ones_for_zeros(const float* in, float* out, std::int64_t count) {
  for_each(count, [=](std::int64_t i) { out[i] = in[i] == 0 ? 1 : in[i]; });
}

void put_zeros_back(const float* in, const float* others, float* out, std::int64_t count) {
  for_each(count, [=](std::int64_t i) {
    const float x = in[i], other = others[i];  // both are loaded: no branch
    out[i] = x == 0 ? x : other;
  });
}

}  // namespace steptape::replayer::cpu::elements
