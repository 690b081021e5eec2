#include "guards/predicates.h"

#include "guards/mismatch.h"
#include "trace/text.h"

namespace steptape::guards {

Verdict check_predicates(const trace::Recording& recording, std::span<const double> leaves) {
  for (const trace::Predicate& predicate : recording.predicates) {
    const trace::Formula& formula = recording.formulas[predicate.formula];
    const double value = trace::evaluate(formula, leaves);
    if ((value != 0) == predicate.is_nonzero) continue;
    return failed(text_of(formula, recording.leaves), predicate.is_nonzero ? "not zero" : "zero",
                  trace::print_value({trace::Real{value}}));
  }
  return {};
}

}  // namespace steptape::guards
