#include "guards/varying_numbers.h"

#include "guards/mismatch.h"
#include "trace/text.h"

namespace steptape::guards {
namespace {

bool same_bits(double a, double b) { return trace::Real{a} == trace::Real{b}; }

}  // namespace

void VaryingNumbers::add(std::string path, double recorded, trace::Index leaf, Kind kind,
                         GuardKind guard) {
  numbers_.push_back({std::move(path), recorded, leaf, kind == Kind::kLiteral, guard});
}

Verdict VaryingNumbers::check(std::span<const double> values, Entry& entry) const {
  for (std::size_t k = 0; k < numbers_.size(); ++k) {
    const Number& number = numbers_[k];
    if (number.leaf != trace::kNone) entry.leaves[number.leaf] = values[k];
    if (same_bits(values[k], number.recorded)) continue;
    if (number.is_literal) {
      return failed(number.guard, number.path, trace::words_of({trace::Real{number.recorded}}),
                    trace::words_of({trace::Real{values[k]}}));
    }
    entry.has_unseen_number |= !number.is_seen;
  }
  return {};
}

void VaryingNumbers::settle(std::span<const double> values) {
  for (std::size_t k = 0; k < numbers_.size(); ++k) {
    numbers_[k].is_seen |= !same_bits(values[k], numbers_[k].recorded);
  }
}

void VaryingNumbers::pin(std::span<const double> values) {
  for (std::size_t k = 0; k < numbers_.size(); ++k) {
    Number& number = numbers_[k];
    number.is_literal |= !same_bits(values[k], number.recorded) && !number.is_seen;
  }
}

}  // namespace steptape::guards
