#include "replayer/planner/numbers/bindings.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>

#include "trace/numbers.h"
#include "trace/value.h"

namespace steptape::replayer {
namespace {

double number_or_zero(const Numbers& numbers, const std::string& path) {
  const auto found = numbers.find(path);
  return found == numbers.end() ? 0 : found->second;
}

}  // namespace

Bindings::Bindings(trace::Recording& recording)
    : recording_(recording),
      numbers_(numbers_at(recording)),
      values_(numbers_of(recording.leaves, numbers_)),
      elements_(recording) {
  for (trace::Index i = 0; i < recording.leaves.size(); ++i) {
    leaves_.emplace(std::pair(recording.leaves[i].kind, recording.leaves[i].path), i);
  }
  for (trace::Index i = 0; i < recording.formulas.size(); ++i) {
    formulas_.emplace(key_of(recording.formulas[i]), i);
  }
  for (const trace::ScalarSite& site : recording.scalars) places_.insert(place_of(site));
  for (const trace::Predicate& known : recording.predicates) {
    required_.emplace(known.formula, known.is_nonzero);
  }
  for (std::size_t i = 0; i < recording.advances.size(); ++i) {
    advances_.try_emplace(recording.advances[i].path, i);
  }
}

Bindings::Key Bindings::key_of(const trace::Formula& formula) {
  Key key;
  key.reserve(2 * formula.nodes.size());
  for (const trace::Node& node : formula.nodes) {
    key.push_back(static_cast<std::uint64_t>(node.operation));
    key.push_back(node.operation == trace::Operation::kLeaf
                      ? node.leaf
                      : std::bit_cast<std::uint64_t>(node.constant.value));
  }
  return key;
}

std::size_t Bindings::Hash::operator()(const Key& key) const noexcept {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(key.data()), key.size() * sizeof(Key::value_type)});
}

trace::Index Bindings::leaf(trace::LeafKind kind, const std::string& path) {
  const auto next = static_cast<trace::Index>(recording_.leaves.size());
  const auto [entry, is_new] = leaves_.try_emplace({kind, path}, next);
  if (is_new) {
    recording_.leaves.push_back({kind, path});
    values_.push_back(number_or_zero(numbers_, path));
  }
  return entry->second;
}

trace::Index Bindings::formula(const trace::Formula& formula) {
  const auto next = static_cast<trace::Index>(recording_.formulas.size());
  const auto [entry, is_new] = formulas_.try_emplace(key_of(formula), next);
  if (is_new) recording_.formulas.push_back(formula);
  return entry->second;
}

Bindings::Place Bindings::place_of(const trace::ScalarSite& site) {
  if (site.op == trace::kNone) return {trace::kNone, site.buffer, site.item};
  return {site.op, site.argument, site.item};
}

bool Bindings::is_bound(const trace::ScalarSite& site) const {
  return places_.contains(place_of(site));
}

trace::Index Bindings::bind(trace::ScalarSite site, const trace::Formula& formula) {
  site.formula = this->formula(formula);
  if (places_.insert(place_of(site)).second) recording_.scalars.push_back(site);
  return site.formula;
}

void Bindings::require(const trace::Formula& formula, bool is_nonzero) {
  const trace::Predicate predicate{this->formula(formula), is_nonzero};
  if (!required_.emplace(predicate.formula, is_nonzero).second) return;
  recording_.predicates.push_back(predicate);
}

void Bindings::advance(const std::string& path, std::int64_t by) {
  const auto [entry, is_new] = advances_.try_emplace(path, recording_.advances.size());
  if (is_new) {
    recording_.advances.push_back({path, by});
  } else {
    recording_.advances[entry->second].by += by;
  }
}

double Bindings::recorded(const trace::Formula& formula) const {
  return trace::evaluate(formula, values_);
}

bool Bindings::gives_recorded(const trace::Formula& formula, const trace::ScalarSite& site) const {
  const double value = recorded(formula);
  if (site.op != trace::kNone) {
    return trace::Real{trace::number_of(recorded_argument(recording_, site))} == trace::Real{value};
  }
  const auto element = elements_.at(site);
  return element && trace::is_element(value, element->dtype, element->bytes);
}

Numbers numbers_at(const trace::Recording& recording) {
  Numbers numbers;
  const auto add = [&numbers](const std::string& path, const trace::Value& value) {
    numbers.emplace(path, trace::number_of(value));
  };
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    trace::for_each_number(layout, add);
  }
  for (const trace::Input& input : recording.inputs) {
    trace::for_each_number(input.path, input.value, add);
  }
  for (const trace::NamedValue& value : recording.host_values) {
    trace::for_each_number(value.name, value.value, add);
  }
  for (const trace::HostRead& read : recording.reads) {
    trace::for_each_number(trace::read_path(read.op), recording.ops[read.op].outputs[0], add);
  }
  return numbers;
}

std::vector<trace::Index> reads_of_leaves(const trace::Recording& recording) {
  std::unordered_map<std::string, trace::Index> reads;
  for (trace::Index i = 0; i < recording.reads.size(); ++i) {
    reads.emplace(trace::read_path(recording.reads[i].op), i);
  }
  std::vector<trace::Index> read_of;
  for (const trace::Leaf& leaf : recording.leaves) {
    const auto found =
        leaf.kind == trace::LeafKind::kHostRead ? reads.find(leaf.path) : reads.end();
    read_of.push_back(found == reads.end() ? trace::kNone : found->second);
  }
  return read_of;
}

std::vector<double> numbers_of(const std::vector<trace::Leaf>& leaves, const Numbers& numbers) {
  std::vector<double> values;
  values.reserve(leaves.size());
  for (const trace::Leaf& leaf : leaves) values.push_back(number_or_zero(numbers, leaf.path));
  return values;
}

std::vector<double> recorded_leaves(const trace::Recording& recording) {
  return numbers_of(recording.leaves, numbers_at(recording));
}

trace::Value recorded_number(const trace::Elements& elements, const trace::ScalarSite& site) {
  if (site.op != trace::kNone) return recorded_argument(elements.recording(), site);
  const auto element = elements.at(site);
  if (!element || element->bytes.empty()) return {};
  return trace::element_of(element->bytes.data(), element->dtype);
}

trace::Value recorded_argument(const trace::Recording& recording, const trace::ScalarSite& site) {
  const trace::Value& value = recording.ops[site.op].inputs[site.argument];
  return site.item == trace::kNone ? value : std::get<trace::List>(value.data)[site.item];
}

}  // namespace steptape::replayer
