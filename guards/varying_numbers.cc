#include "guards/varying_numbers.h"

#include <algorithm>
#include <cmath>

#include "guards/mismatch.h"
#include "trace/text/text.h"

namespace steptape::guards {
namespace {

bool same_bits(double a, double b) { return trace::Real{a} == trace::Real{b}; }

}  // namespace

void VaryingNumbers::add(std::string path, double recorded, trace::Index leaf, Kind kind,
                         GuardKind guard) {
  numbers_.push_back({std::move(path), recorded, leaf, kind == Kind::kLiteral, guard});
  numbers_.back().proved.add(recorded);
}

Verdict VaryingNumbers::check(std::span<const double> values, Entry& entry) const {
  unproved_.clear();
  for (std::size_t k = 0; k < numbers_.size(); ++k) {
    const Number& number = numbers_[k];
    if (number.leaf != trace::kNone) entry.leaves[number.leaf] = values[k];
    if (same_bits(values[k], number.recorded)) continue;
    if (number.is_literal ? number.proved.is_among(values[k]) : number.proved.holds(values[k])) {
      continue;
    }
    if (number.is_literal) {
      return failed(number.guard, number.path, trace::words_of({trace::Real{number.recorded}}),
                    trace::words_of({trace::Real{values[k]}}));
    }
    unproved_.emplace_back(k, values[k]);
    entry.has_unseen_number = true;
  }
  return {};
}

void VaryingNumbers::settle() {
  for (const auto& [k, value] : unproved_) numbers_[k].proved.add(value);
  unproved_.clear();
}

void VaryingNumbers::prove(const NumberAt& number_at) {
  for (Number& number : numbers_) {
    if (number.is_literal) continue;
    if (const auto value = number_at(number.path)) number.proved.add(*value);
  }
}

bool VaryingNumbers::pin() {
  for (const auto& [k, value] : unproved_) numbers_[k].is_literal = true;
  return !std::exchange(unproved_, {}).empty();
}

bool VaryingNumbers::is_pinned(const std::string& path) const {
  return std::ranges::any_of(numbers_, [&path](const Number& number) {
    return number.is_literal && number.leaf != trace::kNone && number.path == path;
  });
}

bool may_follow(const trace::Value& expected, const trace::Value& found) {
  return !std::holds_alternative<bool>(expected.data) &&
         found.data.index() == expected.data.index() && trace::is_exact_number(expected) &&
         trace::is_exact_number(found) &&
         std::isfinite(trace::number_of(found)) == std::isfinite(trace::number_of(expected));
}

Verdict check_predicates(const trace::Recording& recording, std::span<const double> leaves) {
  for (const trace::Predicate& predicate : recording.predicates) {
    const trace::Formula& formula = recording.formulas[predicate.formula];
    if (trace::waits_for_read(formula, recording.leaves)) continue;  // checked in mid-run
    const double value = trace::evaluate(formula, leaves);
    if ((value != 0) == predicate.is_nonzero) continue;
    return predicate_mismatch(recording, predicate, value);
  }
  return {};
}

Verdict predicate_mismatch(const trace::Recording& recording, const trace::Predicate& predicate,
                           double value) {
  return failed(GuardKind::kPredicate,
                text_of(recording.formulas[predicate.formula], recording.leaves),
                predicate.is_nonzero ? "not zero" : "zero", trace::words_of({trace::Real{value}}));
}

}  // namespace steptape::guards
