#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "diff/sections.h"
#include "trace/numbers.h"
#include "trace/operators.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

class FormulaComparison {
 public:
  FormulaComparison(const OpStream& a, const OpStream& b,
                    const std::vector<trace::Leaf>& leaves_of_b)
      : a_(a), b_(b), leaves_of_b_(leaves_of_b) {}

  void compare(const OpPair& pair) {
    pair_ = pair;
    const trace::Op& x = a_.recording().ops[pair.a];
    const trace::Op& y = b_.recording().ops[pair.b];
    const std::size_t both = std::min(x.inputs.size(), y.inputs.size());
    for (trace::Index i = 0; i < both; ++i) {
      argument_ = i;
      compare_values(trace::kNone, x.inputs[i], y.inputs[i]);
    }
  }
  std::vector<trace::Finding> take() { return std::move(findings_); }

 private:
  void compare_values(trace::Index item, const trace::Value& x, const trace::Value& y) {
    const auto* list_x = std::get_if<trace::List>(&x.data);
    const auto* list_y = std::get_if<trace::List>(&y.data);
    if (list_x != nullptr && list_y != nullptr && item == trace::kNone) {
      const std::size_t both = std::min(list_x->size(), list_y->size());
      for (trace::Index i = 0; i < both; ++i) compare_values(i, (*list_x)[i], (*list_y)[i]);
      return;
    }
    const std::vector<trace::Index> formulas_x = formulas_of(a_, pair_.a, item, x);
    const std::vector<trace::Index> formulas_y = formulas_of(b_, pair_.b, item, y);
    if (formulas_x.empty() && formulas_y.empty()) return;
    std::string words_x = words_of(a_, pair_.a, item, x, formulas_x);
    std::string words_y = words_of(b_, pair_.b, item, y, formulas_y);
    if (words_x == words_y || !is_new(x, y)) return;
    findings_.push_back({place_of(item), std::move(words_x), std::move(words_y)});
  }

  /// A number in a tensor is told once, whoever reads it.
  bool is_new(const trace::Value& x, const trace::Value& y) {
    const std::pair told{buffer_of(a_, x), buffer_of(b_, y)};
    return told == std::pair{trace::kNone, trace::kNone} || told_.insert(told).second;
  }
  static trace::BufferId buffer_of(const OpStream& stream, const trace::Value& value) {
    const trace::Tensor* tensor = stream.recording().find_tensor(value);
    return tensor == nullptr ? trace::kNone : tensor->buffer;
  }

  std::vector<trace::Index> formulas_of(const OpStream& stream, trace::Index op, trace::Index item,
                                        const trace::Value& value) const {
    if (const auto* tensor = std::get_if<trace::TensorRef>(&value.data)) {
      if (tensor->id == trace::kNoTensor) return {};
      return stream.formulas_of(stream.recording().tensors[tensor->id].buffer);
    }
    const trace::Index formula = stream.formula_at(op, argument_, item);
    return formula == trace::kNone ? std::vector<trace::Index>() : std::vector{formula};
  }

  std::string words_of(const OpStream& stream, trace::Index op, trace::Index item,
                       const trace::Value& value, const std::vector<trace::Index>& formulas) const {
    if (formulas.empty()) return stream.words_of(op, argument_, item, value);
    const auto& leaves = &stream == &a_ ? a_.recording().leaves : leaves_of_b_;
    std::vector<std::string> words;
    for (const trace::Index formula : formulas)
      words.push_back(text_of(stream.recording().formulas[formula], leaves));
    return fmt::format("{}", fmt::join(words, ", "));
  }

  std::string place_of(trace::Index item) const {
    const trace::Recording& recording = a_.recording();
    const trace::Operator& op = recording.operator_of(recording.ops[pair_.a]);
    const auto names = trace::arguments_of(op.schema);
    std::string place = fmt::format("op {} {} ", pair_.a, op.full_name());
    place += trace::argument_name(names, argument_);
    return item == trace::kNone ? place : fmt::format("{}[{}]", place, item);
  }

  const OpStream& a_;
  const OpStream& b_;
  const std::vector<trace::Leaf>& leaves_of_b_;
  OpPair pair_;
  trace::Index argument_ = trace::kNone;
  std::set<std::pair<trace::BufferId, trace::BufferId>> told_;
  std::vector<trace::Finding> findings_;
};

/// Values that the second recording reads, under the names that they have in the first.
std::vector<trace::Leaf> leaves_as_in_a(const trace::Recording& b,
                                        const std::vector<OpPair>& pairs) {
  std::unordered_map<std::string, trace::Index> partners;
  for (const OpPair& pair : pairs) partners.emplace(trace::read_path(pair.b), pair.a);
  std::vector<trace::Leaf> leaves = b.leaves;
  for (trace::Leaf& leaf : leaves) {
    if (leaf.kind != trace::LeafKind::kHostRead) continue;
    const auto partner = partners.find(leaf.path);
    leaf.path =
        partner == partners.end() ? "inserted " + leaf.path : trace::read_path(partner->second);
  }
  return leaves;
}

/// Conditions and advances.
std::vector<trace::Property> leaves_of(const trace::Recording& recording,
                                       const std::vector<trace::Leaf>& leaves) {
  std::vector<trace::Property> properties;
  for (const trace::Predicate& predicate : recording.predicates) {
    const std::string text = text_of(recording.formulas[predicate.formula], leaves);
    properties.push_back({text, "condition " + text, predicate.is_nonzero ? "not zero" : "zero"});
  }
  for (const trace::Advance& advance : recording.advances) {
    properties.push_back(
        {advance.path, advance.path + " (advance)", fmt::format("by {}", advance.by)});
  }
  return properties;
}

}  // namespace

std::vector<trace::Finding> formula_differences(const OpStream& a, const OpStream& b,
                                                const Alignment& alignment) {
  const std::vector<trace::Leaf> leaves = leaves_as_in_a(b.recording(), alignment.pairs);
  FormulaComparison comparison(a, b, leaves);
  for (const OpPair& pair : alignment.pairs) comparison.compare(pair);
  std::vector<trace::Finding> findings = comparison.take();
  for (trace::Finding& finding : differences(leaves_of(a.recording(), a.recording().leaves),
                                             leaves_of(b.recording(), leaves))) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace steptape::diff
