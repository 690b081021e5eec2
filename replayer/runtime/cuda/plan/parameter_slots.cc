#include "replayer/runtime/cuda/plan/parameter_slots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "replayer/runtime/cuda/plan/conversion.h"
#include "steptape/error.h"

namespace steptape::replayer::cuda {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// The low `bytes` bytes.
constexpr std::uint64_t low_bytes(std::size_t bytes) {
  return bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
}

/// Every byte that is not 0 as 0xff.
std::uint64_t whole_bytes(std::uint64_t word) {
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint64_t byte = std::uint64_t{0xff} << (8 * i);
    if ((word & byte) != 0) mask |= byte;
  }
  return mask;
}

std::uint64_t range_of(const Slot& slot) {
  return low_bytes(bytes_of(slot.conversion)) << (8 * (slot.offset % 8));
}

/// `word` with what `slot` puts into it.
std::optional<std::uint64_t> put_into(std::uint64_t word, const Slot& slot, double number) {
  const auto given = bits_of(number, slot.conversion);
  if (!given) return std::nullopt;
  return (word & ~range_of(slot)) | (*given << (8 * (slot.offset % 8)));
}

/// Whether `given` is a number, not an infinity or a NaN.
bool is_finite(std::uint64_t given, Conversion conversion) {
  if (conversion >= Conversion::kInt32) return true;
  const bool is_half =
      conversion == Conversion::kFloat16 || conversion == Conversion::kFloat16Negated;
  const std::size_t width = bytes_of(conversion);
  const std::uint64_t exponent = width == 8   ? 0x7ff0000000000000
                                 : width == 4 ? 0x7f800000
                                 : is_half    ? 0x7c00
                                              : 0x7f80;
  return (given & exponent) != exponent;
}

/// Whether a value of it does not fit most integers: torch checks that, and throws.
bool is_narrow(Conversion conversion) {
  return conversion == Conversion::kInt16 || conversion == Conversion::kInt8 ||
         conversion == Conversion::kUInt8;
}

bool is_wide_integer(Conversion conversion) {
  return conversion >= Conversion::kInt32 && conversion <= Conversion::kInt64Negated;
}

/// Whether it is the same for two numbers just when another conversion is.
bool follows_another(Conversion conversion) {
  switch (conversion) {
    case Conversion::kFloat32Negated:
    case Conversion::kFloat32OfFloat16:
    case Conversion::kFloat64Negated:
    case Conversion::kFloat64OfFloat32:
    case Conversion::kBFloat16Negated:
    case Conversion::kFloat16Negated:
      return true;
    default:
      return conversion >= Conversion::kInt32 && conversion != Conversion::kInt64;
  }
}

/// Why two captures are not of the same launches; empty: they are.
std::string launch_mismatch(const std::vector<KernelImage>& a, const std::vector<KernelImage>& b) {
  if (a.size() != b.size()) {
    return fmt::format("other numbers launch {} kernels in place of {}", b.size(), a.size());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].function != b[i].function) {
      return fmt::format("other numbers launch another kernel {}", i);
    }
    if (a[i].grid != b[i].grid || a[i].block != b[i].block ||
        a[i].shared_bytes != b[i].shared_bytes) {
      return fmt::format("other numbers launch kernel {} on another grid", i);
    }
    const auto bytes = [](const std::vector<std::byte>& block) { return block.size(); };
    if (!std::ranges::equal(a[i].parameters, b[i].parameters, {}, bytes, bytes)) {
      return fmt::format("other numbers launch kernel {} with other parameters", i);
    }
  }
  return {};
}

}  // namespace

/// Goes through the parameters in aligned words of eight bytes: no slot reaches over one.
class ParameterSlots::Search {
 public:
  explicit Search(std::span<const ParameterSample> samples) : samples_(samples) {
    const std::size_t numbers = samples.front().numbers.size();
    result_.numbers_.resize(numbers);
    for (std::size_t n = 0; n < numbers; ++n) look_at(n);
    for (std::size_t s = 1; s < samples.size(); ++s) {
      for (std::size_t other = 0; other < s; ++other) {
        if (std::ranges::equal(samples[s].numbers, samples[other].numbers, same_bits)) {
          equal_.emplace_back(other, s);
          break;
        }
      }
    }
  }

  SlotSearch run() {
    const std::vector<KernelImage>& nodes = samples_.front().nodes;
    for (const ParameterSample& sample : samples_) {
      if (auto reason = launch_mismatch(nodes, sample.nodes); !reason.empty()) {
        return {std::nullopt, std::move(reason)};
      }
    }
    for (Slot at; at.node < nodes.size(); ++at.node) {
      for (at.parameter = 0; at.parameter < nodes[at.node].parameters.size(); ++at.parameter) {
        const std::size_t bytes = nodes[at.node].parameters[at.parameter].size();
        for (at.offset = 0; at.offset < bytes; at.offset += 8) {
          if (auto reason = explain(at, std::min<std::size_t>(8, bytes - at.offset))) {
            return {std::nullopt, std::move(*reason)};
          }
        }
      }
    }
    return finish();
  }

 private:
  /// What a conversion of a number gives in each sample.
  struct Series {
    std::size_t number;
    Conversion conversion;
    std::vector<std::uint64_t> bits;
  };
  struct Candidate {
    Slot slot;
    std::uint64_t covers;  ///< of the bytes that vary
  };

  void look_at(std::size_t n) {
    Number& number = result_.numbers_[n];
    for (const ParameterSample& sample : samples_) {
      const double value = sample.numbers[n];
      const auto same = [&](double sampled) { return same_bits(sampled, value); };
      if (std::ranges::none_of(number.sampled, same)) number.sampled.push_back(value);
    }
    for (std::size_t c = 0; c < kConversions; ++c) {
      Series series{n, static_cast<Conversion>(c), {}};
      for (const ParameterSample& sample : samples_) {
        if (const auto given = bits_of(sample.numbers[n], series.conversion)) {
          series.bits.push_back(*given);
        }
      }
      if (series.bits.size() != samples_.size()) continue;
      if (std::ranges::count(series.bits, series.bits[0]) != std::ssize(series.bits)) {
        series_.push_back(std::move(series));
      } else if (!follows_another(series.conversion)) {
        number.hidden.push_back({series.conversion, series.bits[0]});
      }
    }
  }

  /// Finds the slots in the word of `bytes` bytes at `at`, or the reason why they do not explain
  /// it.
  std::optional<std::string> explain(const Slot& at, std::size_t bytes) {
    word_.clear();
    for (const ParameterSample& sample : samples_) {
      std::uint64_t word = 0;
      std::memcpy(&word, sample.nodes[at.node].parameters[at.parameter].data() + at.offset, bytes);
      word_.push_back(word);
    }
    std::uint64_t varying = 0, noise = 0;
    for (const std::uint64_t word : word_) varying |= whole_bytes(word ^ word_[0]);
    for (const auto& [a, b] : equal_) noise |= whole_bytes(word_[a] ^ word_[b]);
    varying &= ~noise;
    if (varying == 0) return std::nullopt;

    std::vector<Candidate> candidates = candidates_at(at, bytes, varying);
    while (!candidates.empty()) {
      const std::uint64_t covers = std::ranges::max(candidates, {}, [](const Candidate& candidate) {
                                     return std::popcount(candidate.covers);
                                   }).covers;
      if (auto reason = choose(candidates, covers)) return reason;
      varying &= ~covers;
      std::erase_if(candidates,
                    [&](const Candidate& candidate) { return (candidate.covers & covers) != 0; });
    }
    if (varying == 0 || is_rest_of_address(varying, noise)) return std::nullopt;
    return unexplained(at, varying);
  }

  /// None of them covers noise: what fits every sample is equal for equal numbers.
  std::vector<Candidate> candidates_at(const Slot& at, std::size_t bytes,
                                       std::uint64_t varying) const {
    std::vector<Candidate> candidates;
    for (const Series& series : series_) {
      const std::size_t width = bytes_of(series.conversion);
      for (std::size_t first = 0; first + width <= bytes; first += width) {
        const Slot slot{at.node, at.parameter, at.offset + first, series.number, series.conversion};
        const std::uint64_t range = range_of(slot);
        if ((range & varying) == 0) continue;
        const auto fits = [&](std::uint64_t word, std::uint64_t given) {
          return (word & range) == given << (8 * first);
        };
        if (std::ranges::equal(word_, series.bits, fits)) {
          candidates.push_back({slot, range & varying});
        }
      }
    }
    return candidates;
  }

  /// Takes one of the candidates that cover just these bytes; the others are its rivals.
  std::optional<std::string> choose(const std::vector<Candidate>& candidates,
                                    std::uint64_t covers) {
    std::vector<Slot> equals;
    for (const Candidate& candidate : candidates) {
      if (candidate.covers == covers) equals.push_back(candidate.slot);
    }
    const auto is_wide = [](const Slot& slot) { return is_wide_integer(slot.conversion); };
    if (std::ranges::any_of(equals, is_wide)) {
      std::erase_if(equals, [](const Slot& slot) { return is_narrow(slot.conversion); });
    }
    const Slot& chosen = *std::ranges::min_element(equals, {}, &Slot::conversion);
    for (const Slot& slot : equals) {
      if (slot.number != chosen.number) {
        return fmt::format(
            "numbers {} and {} cannot be told apart at byte {} of parameter {} of kernel {}",
            chosen.number, slot.number, chosen.offset, chosen.parameter, chosen.node);
      }
      if (slot != chosen) result_.rivals_.push_back({chosen, slot, word_[0]});
    }
    result_.slots_.push_back(chosen);
    return std::nullopt;
  }

  /// The samples of equal numbers need not show every byte in which addresses differ. Taken for one
  /// is a word that in every sample has the upper half of the same address, and noise in the lower
  /// half, where the rest is.
  bool is_rest_of_address(std::uint64_t rest, std::uint64_t noise) const {
    constexpr std::uint64_t kLow = 0xffffffff;
    const std::uint64_t upper = word_[0] >> 32;
    const auto has_upper = [&](std::uint64_t word) { return word >> 32 == upper; };
    return (rest & ~kLow) == 0 && (noise & kLow) != 0 && upper >= 0x100 && upper < 0x20000 &&
           std::ranges::all_of(word_, has_upper);
  }

  std::string unexplained(const Slot& at, std::uint64_t rest) const {
    std::vector<std::size_t> numbers;
    for (std::size_t s = 1; s < samples_.size(); ++s) {
      if (((word_[s] ^ word_[0]) & rest) == 0) continue;
      std::optional<std::size_t> alone;
      std::size_t others = 0;
      for (std::size_t n = 0; n < samples_[s].numbers.size(); ++n) {
        if (same_bits(samples_[s].numbers[n], samples_[0].numbers[n])) continue;
        alone = n;
        ++others;
      }
      if (others == 1 && std::ranges::find(numbers, *alone) == numbers.end()) {
        numbers.push_back(*alone);
      }
    }
    const auto first = static_cast<std::size_t>(std::countr_zero(rest)) / 8;
    const auto last = static_cast<std::size_t>(63 - std::countl_zero(rest)) / 8;
    return fmt::format(
        "bytes {} to {} of parameter {} of kernel {} differ between captures as no conversion of "
        "one number does{}{}",
        at.offset + first, at.offset + last, at.parameter, at.node,
        numbers.empty() ? "" : "; they depend on number ", fmt::join(numbers, " and on number "));
  }

  SlotSearch finish() {
    std::ranges::sort(result_.slots_);
    for (const Slot& slot : result_.slots_) {
      std::vector<Conversion>& used = result_.numbers_[slot.number].used;
      if (std::ranges::find(used, slot.conversion) == used.end()) used.push_back(slot.conversion);
    }
    for (std::size_t n = 0; n < result_.numbers_.size(); ++n) {
      if (result_.numbers_[n].used.empty()) result_.unused_.push_back(n);
    }
    return {std::move(result_), {}};
  }

  std::span<const ParameterSample> samples_;
  std::vector<std::pair<std::size_t, std::size_t>> equal_;  ///< samples of equal numbers
  std::vector<Series> series_;                              ///< those that vary
  std::vector<std::uint64_t> word_;                         ///< in each sample
  ParameterSlots result_;
};

SlotSearch ParameterSlots::find(std::span<const ParameterSample> samples) {
  const auto numbers = [](const ParameterSample& sample) { return sample.numbers.size(); };
  if (samples.empty() || !std::ranges::all_of(samples, [&](const ParameterSample& sample) {
        return numbers(sample) == numbers(samples.front());
      })) {
    throw Error(ErrorCode::kInternal, "captures of an op with other counts of numbers, or none");
  }
  return Search(samples).run();
}

std::optional<std::string> ParameterSlots::objection(const Number& number, double value) const {
  const auto same = [&](double sampled) { return same_bits(sampled, value); };
  if (std::ranges::any_of(number.sampled, same)) return std::nullopt;
  const bool is_other = is_special(value) || !std::isfinite(value);
  const auto has_sign = [&](double sampled) {
    return sampled != 0 && std::signbit(sampled) == std::signbit(value);
  };
  if (is_other || number.sampled.size() < 2) {
    return fmt::format("it is {}, which no capture was made with", value);
  }
  if (std::ranges::none_of(number.sampled, has_sign)) {
    return fmt::format("it is {}, and had the other sign in every capture", value);
  }
  for (const Conversion conversion : number.used) {
    const auto given = bits_of(value, conversion);
    if (given && is_finite(*given, conversion)) continue;
    return fmt::format("it is {}, of which {} does not exist", value, name_of(conversion));
  }
  for (const Hidden& hidden : number.hidden) {
    if (bits_of(value, hidden.conversion) != hidden.bits) {
      return fmt::format("it is {}, where {} is no longer what it was in every capture", value,
                         name_of(hidden.conversion));
    }
  }
  return std::nullopt;
}

std::optional<Objection> ParameterSlots::objection(std::span<const double> numbers) const {
  if (numbers.size() != numbers_.size()) {
    throw Error(ErrorCode::kInternal, "other numbers than those of the captures");
  }
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (auto why = objection(numbers_[n], numbers[n])) return Objection{n, std::move(*why)};
  }
  for (const Rival& rival : rivals_) {
    const double value = numbers[rival.slot.number];
    if (put_into(rival.word, rival.slot, value) == put_into(rival.word, rival.other, value)) {
      continue;
    }
    return Objection{
        rival.slot.number,
        fmt::format("it is {}, where {} and {} differ, which no capture told apart", value,
                    name_of(rival.slot.conversion), name_of(rival.other.conversion))};
  }
  return std::nullopt;
}

std::vector<std::size_t> ParameterSlots::put(std::span<const double> numbers,
                                             std::span<KernelImage> nodes) const {
  std::vector<std::size_t> changed;
  for (const Slot& slot : slots_) {
    const std::size_t width = bytes_of(slot.conversion);
    if (slot.number >= numbers.size() || slot.node >= nodes.size() ||
        slot.parameter >= nodes[slot.node].parameters.size() ||
        slot.offset + width > nodes[slot.node].parameters[slot.parameter].size()) {
      throw Error(ErrorCode::kInternal, "a slot lies outside of the parameters of its kernel");
    }
    const auto given = bits_of(numbers[slot.number], slot.conversion);
    if (!given) throw Error(ErrorCode::kInternal, "a number does not fit its slot");
    std::byte* bytes = nodes[slot.node].parameters[slot.parameter].data() + slot.offset;
    if (std::memcmp(bytes, &*given, width) == 0) continue;
    std::memcpy(bytes, &*given, width);
    if (changed.empty() || changed.back() != slot.node) changed.push_back(slot.node);
  }
  return changed;
}

}  // namespace steptape::replayer::cuda
