#include "replayer/runtime/cuda/plan/conversion.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>

#include "steptape/error.h"

namespace steptape::replayer::cuda {
namespace {

template <typename Integer>
std::optional<std::uint64_t> integer_bits(double number) {
  const double whole = std::trunc(number);
  // The least integer is a power of two, and so exact as a double; the largest may not be.
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<Integer>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  if (!(whole >= kLeast && whole < beyond)) return std::nullopt;
  return static_cast<std::make_unsigned_t<Integer>>(static_cast<Integer>(whole));
}

std::uint64_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }
c10::Half half(double value) { return c10::Half(static_cast<float>(value)); }

using Bits = std::optional<std::uint64_t>;

struct ConversionRow {
  std::string_view name;
  std::size_t bytes;
  Bits (*apply)(double x);
};

/// By Conversion.
constexpr std::array kRows = {
    ConversionRow{"float(x)", 4, [](double x) -> Bits { return bits(static_cast<float>(x)); }},
    ConversionRow{"float(-x)", 4, [](double x) -> Bits { return bits(-static_cast<float>(x)); }},
    ConversionRow{"1.f / float(x)", 4,
                  [](double x) -> Bits { return bits(1.0F / static_cast<float>(x)); }},
    ConversionRow{"float(1.0 / x)", 4,
                  [](double x) -> Bits { return bits(static_cast<float>(1.0 / x)); }},
    ConversionRow{"1.f - float(x)", 4,
                  [](double x) -> Bits { return bits(1.0F - static_cast<float>(x)); }},
    ConversionRow{"float(1.0 - x)", 4,
                  [](double x) -> Bits { return bits(static_cast<float>(1.0 - x)); }},
    ConversionRow{"float(half(x))", 4,
                  [](double x) -> Bits { return bits(static_cast<float>(half(x))); }},
    ConversionRow{"double(x)", 8, [](double x) -> Bits { return bits(x); }},
    ConversionRow{"double(-x)", 8, [](double x) -> Bits { return bits(-x); }},
    ConversionRow{"1.0 / x", 8, [](double x) -> Bits { return bits(1.0 / x); }},
    ConversionRow{"1.0 - x", 8, [](double x) -> Bits { return bits(1.0 - x); }},
    ConversionRow{
        "double(float(x))", 8,
        [](double x) -> Bits { return bits(static_cast<double>(static_cast<float>(x))); }},
    ConversionRow{"bfloat16(float(x))", 2,
                  [](double x) -> Bits { return c10::BFloat16(static_cast<float>(x)).x; }},
    ConversionRow{"bfloat16(float(-x))", 2,
                  [](double x) -> Bits { return c10::BFloat16(-static_cast<float>(x)).x; }},
    ConversionRow{"half(float(x))", 2, [](double x) -> Bits { return half(x).x; }},
    ConversionRow{"half(float(-x))", 2, [](double x) -> Bits { return half(-x).x; }},
    ConversionRow{"int32_t(x)", 4, [](double x) -> Bits { return integer_bits<std::int32_t>(x); }},
    ConversionRow{"int32_t(-x)", 4,
                  [](double x) -> Bits { return integer_bits<std::int32_t>(-x); }},
    ConversionRow{"int64_t(x)", 8, [](double x) -> Bits { return integer_bits<std::int64_t>(x); }},
    ConversionRow{"int64_t(-x)", 8,
                  [](double x) -> Bits { return integer_bits<std::int64_t>(-x); }},
    ConversionRow{"int16_t(x)", 2, [](double x) -> Bits { return integer_bits<std::int16_t>(x); }},
    ConversionRow{"int8_t(x)", 1, [](double x) -> Bits { return integer_bits<std::int8_t>(x); }},
    ConversionRow{"uint8_t(x)", 1, [](double x) -> Bits { return integer_bits<std::uint8_t>(x); }},
};
static_assert(kRows.size() == kConversions);

const ConversionRow& row_of(Conversion conversion) noexcept {
  return kRows[static_cast<std::size_t>(conversion)];
}

}  // namespace

std::string_view name_of(Conversion conversion) noexcept { return row_of(conversion).name; }

std::size_t bytes_of(Conversion conversion) noexcept { return row_of(conversion).bytes; }

std::optional<std::uint64_t> bits_of(double number, Conversion conversion) noexcept {
  return row_of(conversion).apply(number);
}

namespace {

constexpr std::array kSpecial = {0.0, 0.5, 1.0, 2.0, 3.0};

/// Draws other values of one number.
class Draw {
 public:
  Draw(double recorded, Domain domain, std::uint64_t seed)
      : recorded_(recorded), domain_(domain), random_(seed), drawn_{recorded} {
    set_range();
    take(recorded);
  }

  /// The best of some draws: that which tells most conversions apart that agreed so far.
  double next() {
    double best = recorded_;
    std::size_t most = 0;
    for (int i = 0; i < 24; ++i) {
      const double value = domain_ == Domain::kReal ? real(i % 2 != 0) : integer();
      if (!std::isfinite(value) || is_special(value)) continue;
      if (std::ranges::find(drawn_, value) != drawn_.end()) continue;
      const std::size_t told = classes_with(value).second;
      if (told <= most) continue;
      most = told;
      best = value;
    }
    drawn_.push_back(best);
    take(best);
    return best;
  }

 private:
  using Classes = std::array<std::size_t, kConversions>;

  void set_range() {
    const bool is_real = domain_ == Domain::kReal;
    const double size = std::abs(recorded_);
    low_ = is_real ? size / 2 : std::max(4.0, std::floor(size / 2));
    high_ = is_real ? 2 * size : 2 * size + 8;
    if (is_real && size == 0) std::tie(low_, high_) = std::pair(0.0005, 0.002);
    const std::vector<double> bounds =
        is_real ? std::vector<double>{1, 65504, FLT_MAX, DBL_MAX}
                : std::vector<double>{127, 255, 32767, 2147483647, 0x1p53};
    for (const double bound : bounds) {
      if (size <= bound) {
        high_ = std::min(high_, bound);
        break;
      }
      if (is_real) low_ = std::max(low_, bound);
    }
  }

  /// `near_tie`: one that 1 - x rounds up or down, and 1.f - float(x) to even: by chance there
  /// would be hardly any such value among small ones.
  double real(bool near_tie) {
    double size = low_ + (high_ - low_) * (static_cast<double>(random_() >> 11) * 0x1p-53);
    if (near_tie) {
      const double step = recorded_ < 0 ? 0x1p-23 : 0x1p-24;
      const double tie = (std::floor(size / step) + 0.5) * step;
      const double beside = tie * (random_() % 2 == 0 ? 1 - 0x1p-27 : 1 + 0x1p-27);
      if (beside > low_ && beside < high_) size = beside;
    }
    return std::copysign(size, recorded_);
  }

  double integer() {
    if (!(high_ > low_) || std::abs(recorded_) > 0x1p53) return recorded_;
    const auto span = static_cast<std::uint64_t>(high_ - low_) + 1;
    return std::copysign(low_ + static_cast<double>(random_() % span), recorded_);
  }

  /// Conversions of one class have agreed for every value; the classes if `value` is one more.
  std::pair<Classes, std::size_t> classes_with(double value) const {
    std::vector<std::pair<std::size_t, std::optional<std::uint64_t>>> keys;
    std::pair<Classes, std::size_t> result;
    for (std::size_t c = 0; c < kConversions; ++c) {
      const std::pair key{classes_[c], bits_of(value, static_cast<Conversion>(c))};
      result.first[c] = static_cast<std::size_t>(std::ranges::find(keys, key) - keys.begin());
      if (result.first[c] == keys.size()) keys.push_back(key);
    }
    result.second = keys.size();
    return result;
  }

  void take(double value) { classes_ = classes_with(value).first; }

  double recorded_;
  Domain domain_;
  std::mt19937_64 random_;
  std::vector<double> drawn_;
  double low_ = 0, high_ = 0;
  Classes classes_ = {};
};

}  // namespace

bool is_special(double value) {
  return std::ranges::find(kSpecial, std::abs(value)) != kSpecial.end();
}

std::vector<std::vector<double>> sample_numbers(std::span<const double> recorded,
                                                std::span<const Domain> domains) {
  if (recorded.size() != domains.size()) {
    throw Error(ErrorCode::kInternal, "numbers of an op, and domains of others");
  }
  const std::vector<double> base(recorded.begin(), recorded.end());
  std::vector<std::vector<double>> others;
  std::vector<std::vector<double>> together(3, base);
  for (std::size_t n = 0; n < base.size(); ++n) {
    Draw draw(base[n], domains[n], n + 1);
    for (int i = 0; i < 2; ++i) {
      others.push_back(base);
      others.back()[n] = draw.next();
    }
    for (std::vector<double>& sample : together) sample[n] = draw.next();
  }
  others.insert(others.end(), together.begin(), together.end());
  std::vector<std::vector<double>> samples = {base};
  for (std::vector<double>& other : others) {
    samples.push_back(std::move(other));
    samples.push_back(base);
  }
  return samples;
}

}  // namespace steptape::replayer::cuda
