#include "guards/predicates.h"

#include <algorithm>
#include <cmath>

#include "guards/mismatch.h"
#include "trace/text/text.h"

namespace steptape::guards {
namespace {

/// Such a predicate is checked in mid-run.
bool waits_for_read(const trace::Recording& recording, const trace::Formula& formula) {
  return std::ranges::any_of(formula.nodes, [&](const trace::Node& node) {
    return node.operation == trace::Operation::kLeaf &&
           recording.leaves[node.leaf].kind == trace::LeafKind::kHostRead;
  });
}

}  // namespace

bool may_follow(const trace::Value& expected, const trace::Value& found) {
  return !std::holds_alternative<bool>(expected.data) &&
         found.data.index() == expected.data.index() && trace::is_exact_number(expected) &&
         trace::is_exact_number(found) &&
         std::isfinite(trace::number_of(found)) == std::isfinite(trace::number_of(expected));
}

Verdict check_predicates(const trace::Recording& recording, std::span<const double> leaves) {
  for (const trace::Predicate& predicate : recording.predicates) {
    const trace::Formula& formula = recording.formulas[predicate.formula];
    if (waits_for_read(recording, formula)) continue;
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
