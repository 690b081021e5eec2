#include <fmt/format.h>

#include "tests/trace/text/named_value.h"
#include "tests/trace/text/text_parse_recording.h"

/// The lines about host numbers: leaves, formulas, and where they enter.
namespace steptape::trace {

Index RecordingParser::take_op(std::string_view expected) {
  in_.expect("op");
  return static_cast<Index>(in_.take_number(expected, UINT32_MAX - 1));
}

void RecordingParser::take_named_value(std::vector<NamedValue>& values) {
  NamedValue& named = values.emplace_back();
  named.name = in_.take_string();
  in_.expect("=");
  named.value = in_.take_value();
}

void RecordingParser::parse_host_value() { take_named_value(recording_.host_values); }

void RecordingParser::parse_lookup() {
  Lookup& lookup = recording_.lookups.emplace_back();
  lookup.name = in_.take_string();
  while (!in_.at_end_of_line()) {
    Leaf& leaf = lookup.under.emplace_back();
    leaf.kind = in_.take_named("a kind of leaf", leaf_kind_of);
    leaf.path = in_.take_string();
  }
}

void RecordingParser::parse_fact() { take_named_value(recording_.facts); }

void RecordingParser::parse_effect() {
  Effect& effect = recording_.effects.emplace_back();
  effect.name = in_.take_string();
  in_.expect("=");
  effect.value = in_.take_string();
  in_.expect("at");
  effect.place = in_.take_string();
  effect.decides = in_.accept("decides");
}

void RecordingParser::parse_place() {
  HeldInput& place = recording_.places.emplace_back();
  place.path = in_.take_string();
  const auto take = [this](Index& index, const char* what) {
    index = static_cast<Index>(in_.take_number(what, UINT32_MAX - 1));
  };
  if (in_.accept("input")) take(place.input, "an input");
  if (in_.accept("from")) {
    in_.expect("result");
    take(place.result, "a result");
  }
  place.is_dropped = in_.accept("dropped");
  if (in_.accept("in")) take(place.place, "a place");
  place.is_carried = in_.accept("carried");
}

void RecordingParser::parse_held() {
  HeldPlace& held = recording_.held.emplace_back();
  held.path = in_.take_string();
  in_.expect("found");
  held.found = in_.take_string();
  in_.expect("left");
  held.left = in_.take_string();
  held.rule = in_.take_named("a rule of a place", value_named<HeldPlace::Rule>);
}

void RecordingParser::parse_leaf() {
  expect_position('l', recording_.leaves.size());
  Leaf& leaf = recording_.leaves.emplace_back();
  leaf.kind = in_.take_named("a kind of leaf", leaf_kind_of);
  leaf.path = in_.take_string();
}

void RecordingParser::parse_formula() {
  expect_position('f', recording_.formulas.size());
  Formula& formula = recording_.formulas.emplace_back();
  while (!in_.at_end_of_line()) {
    Node& node = formula.nodes.emplace_back();
    const std::string_view word = in_.peek_word();
    if (word.size() > 1 && word[0] == 'l' && word[1] <= '9') {
      node.operation = Operation::kLeaf;
      node.leaf = in_.take_index('l', "a leaf");
    } else if (!word.empty() && word[0] >= 'a' && word != "inf" && !word.starts_with("nan")) {
      node.operation = in_.take_named("an operation", value_named<Operation>);
    } else {
      const Value value = in_.take_value();
      const auto* real = std::get_if<Real>(&value.data);
      if (real == nullptr) in_.fail("a real number");
      node.constant = *real;
    }
  }
}

void RecordingParser::parse_scalar() {
  ScalarSite& site = recording_.scalars.emplace_back();
  if (in_.accept("buffer")) {
    site.buffer = in_.take_index('b', "a buffer");
  } else {
    site.op = take_op("a position");
    in_.expect("argument");
    site.argument = static_cast<Index>(in_.take_number("an argument", UINT32_MAX - 1));
  }
  if (in_.accept("item")) {
    site.item = static_cast<Index>(in_.take_number("an item", UINT32_MAX - 1));
  }
  in_.expect("=");
  site.formula = in_.take_index('f', "a formula");
}

void RecordingParser::parse_window() {
  Window& window = recording_.windows.emplace_back();
  window.buffer = in_.take_index('b', "a buffer");
  in_.expect("of");
  window.op = take_op("a position");
}

void RecordingParser::parse_proof() {
  Proof& proof = recording_.proofs.emplace_back();
  proof.formula = in_.take_index('f', "a formula");
  in_.expect("at");
  std::vector<double> values;
  while (!in_.accept("turns")) values.push_back(in_.take_real().value);
  proof.proved = {values, static_cast<std::uint32_t>(in_.take_number("turns", UINT32_MAX))};
  proof.is_pinned = in_.accept("alone");
}

void RecordingParser::parse_predicate() {
  Predicate& predicate = recording_.predicates.emplace_back();
  predicate.formula = in_.take_index('f', "a formula");
  predicate.is_nonzero = in_.accept("nonzero");
  if (!predicate.is_nonzero) in_.expect("zero");
}

void RecordingParser::parse_advance() {
  Advance& advance = recording_.advances.emplace_back();
  advance.path = in_.take_string();
  in_.expect("by");
  advance.by = in_.take_integer("a number");
}

void RecordingParser::parse_read() {
  HostRead& read = recording_.reads.emplace_back();
  read.op = take_op("a position");
  read.use = in_.take_named("the use of a read", value_named<ReadUse>);
}

void RecordingParser::parse_number() {
  Number& number = recording_.numbers.emplace_back();
  in_.expect("=");
  number.value = in_.take_value();
  if (in_.accept("from")) number.op = take_op("a position");
  if (in_.accept("as")) number.formula = in_.take_index('f', "a formula");
  if (in_.accept("becomes")) number.becomes = in_.take_string();
}

void RecordingParser::parse_observed() {
  recording_.observed = static_cast<Index>(in_.take_number("a number of results", UINT32_MAX - 1));
}

void RecordingParser::parse_update() { recording_.updates.push_back(in_.take_string()); }

}  // namespace steptape::trace
