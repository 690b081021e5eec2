#include "trace/formula_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "trace/numbers.h"
#include "trace/schema.h"
#include "trace/text.h"

namespace steptape::trace {
namespace {

class FormulaComparison {
 public:
  FormulaComparison(const OpStream& a, const OpStream& b, const std::vector<Leaf>& leaves_of_b)
      : a_(a), b_(b), leaves_of_b_(leaves_of_b) {}

  void compare(const OpPair& pair) {
    pair_ = pair;
    const Op& x = a_.recording().ops[pair.a];
    const Op& y = b_.recording().ops[pair.b];
    const std::size_t both = std::min(x.inputs.size(), y.inputs.size());
    for (Index i = 0; i < both; ++i) {
      argument_ = i;
      compare_values(kNone, x.inputs[i], y.inputs[i]);
    }
  }
  std::vector<Finding> take() { return std::move(findings_); }

 private:
  void compare_values(Index item, const Value& x, const Value& y) {
    const auto* list_x = std::get_if<List>(&x.data);
    const auto* list_y = std::get_if<List>(&y.data);
    if (list_x != nullptr && list_y != nullptr && item == kNone) {
      const std::size_t both = std::min(list_x->size(), list_y->size());
      for (Index i = 0; i < both; ++i) compare_values(i, (*list_x)[i], (*list_y)[i]);
      return;
    }
    const std::vector<Index> formulas_x = formulas_of(a_, pair_.a, item, x);
    const std::vector<Index> formulas_y = formulas_of(b_, pair_.b, item, y);
    if (formulas_x.empty() && formulas_y.empty()) return;
    std::string words_x = words_of(a_, pair_.a, item, x, formulas_x);
    std::string words_y = words_of(b_, pair_.b, item, y, formulas_y);
    if (words_x == words_y || !is_new(x)) return;
    findings_.push_back({place_of(item), std::move(words_x), std::move(words_y)});
  }

  /// A number in a tensor is told once, whoever reads it.
  bool is_new(const Value& x) {
    const auto* tensor = std::get_if<TensorRef>(&x.data);
    if (tensor == nullptr || tensor->id == kNoTensor) return true;
    return told_.insert(a_.recording().tensors[tensor->id].buffer).second;
  }

  std::vector<Index> formulas_of(const OpStream& stream, Index op, Index item,
                                 const Value& value) const {
    if (const auto* tensor = std::get_if<TensorRef>(&value.data)) {
      if (tensor->id == kNoTensor) return {};
      return stream.formulas_of(stream.recording().tensors[tensor->id].buffer);
    }
    const Index formula = stream.formula_at(op, argument_, item);
    return formula == kNone ? std::vector<Index>() : std::vector{formula};
  }

  std::string words_of(const OpStream& stream, Index op, Index item, const Value& value,
                       const std::vector<Index>& formulas) const {
    if (formulas.empty()) return stream.words_of(op, argument_, item, value);
    const auto& leaves = &stream == &a_ ? a_.recording().leaves : leaves_of_b_;
    std::vector<std::string> words;
    for (const Index formula : formulas)
      words.push_back(text_of(stream.recording().formulas[formula], leaves));
    return fmt::format("{}", fmt::join(words, ", "));
  }

  std::string place_of(Index item) const {
    const Recording& recording = a_.recording();
    const Operator& op = recording.operator_of(recording.ops[pair_.a]);
    const auto names = arguments_of(op.schema);
    std::string place = fmt::format("op {} {} ", pair_.a, op.full_name());
    place += argument_ < names.size() ? std::string(names[argument_].name)
                                      : fmt::format("inputs[{}]", argument_);
    return item == kNone ? place : fmt::format("{}[{}]", place, item);
  }

  const OpStream& a_;
  const OpStream& b_;
  const std::vector<Leaf>& leaves_of_b_;
  OpPair pair_;
  Index argument_ = kNone;
  std::unordered_set<BufferId> told_;
  std::vector<Finding> findings_;
};

/// Values that the second recording reads, under the names that they have in the first.
std::vector<Leaf> leaves_as_in_a(const Recording& b, const std::vector<OpPair>& pairs) {
  std::unordered_map<std::string, Index> partners;
  for (const OpPair& pair : pairs) partners.emplace(read_path(pair.b), pair.a);
  std::vector<Leaf> leaves = b.leaves;
  for (Leaf& leaf : leaves) {
    if (leaf.kind != LeafKind::kHostRead) continue;
    const auto partner = partners.find(leaf.path);
    leaf.path = partner == partners.end() ? "inserted " + leaf.path : read_path(partner->second);
  }
  return leaves;
}

/// Conditions and advances.
std::vector<Property> properties_of(const Recording& recording, const std::vector<Leaf>& leaves) {
  std::vector<Property> properties;
  for (const Predicate& predicate : recording.predicates) {
    const std::string text = text_of(recording.formulas[predicate.formula], leaves);
    properties.push_back({text, "condition " + text, predicate.is_nonzero ? "not zero" : "zero"});
  }
  for (const Advance& advance : recording.advances) {
    properties.push_back(
        {advance.path, advance.path + " (advance)", fmt::format("by {}", advance.by)});
  }
  return properties;
}

}  // namespace

std::vector<Finding> formula_differences(const OpStream& a, const OpStream& b,
                                         const Alignment& alignment) {
  const std::vector<Leaf> leaves = leaves_as_in_a(b.recording(), alignment.pairs);
  FormulaComparison comparison(a, b, leaves);
  for (const OpPair& pair : alignment.pairs) comparison.compare(pair);
  std::vector<Finding> findings = comparison.take();
  for (Finding& finding : differences(properties_of(a.recording(), a.recording().leaves),
                                      properties_of(b.recording(), leaves))) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace steptape::trace
