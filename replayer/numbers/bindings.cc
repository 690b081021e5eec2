#include "replayer/numbers/bindings.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "trace/element.h"

namespace steptape::replayer {
namespace {

std::vector<std::uint64_t> key_of(const trace::Formula& formula) {
  std::vector<std::uint64_t> key;
  for (const trace::Node& node : formula.nodes) {
    key.push_back(static_cast<std::uint64_t>(node.operation));
    key.push_back(node.operation == trace::Operation::kLeaf
                      ? node.leaf
                      : std::bit_cast<std::uint64_t>(node.constant.value));
  }
  return key;
}

using Numbers = std::unordered_map<std::string, double>;

void add_flat(Numbers& numbers, const std::string& path, const trace::Value& value) {
  if (const auto* list = std::get_if<trace::List>(&value.data)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      add_flat(numbers, path + "[" + std::to_string(i) + "]", (*list)[i]);
    }
  } else if (trace::is_number(value)) {
    numbers.emplace(path, trace::number_of(value));
  }
}

Numbers numbers_of(const trace::Recording& recording) {
  Numbers numbers;
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const std::string group = layout.path + ".param_groups[" + std::to_string(g) + "].";
      for (const trace::NamedValue& named : layout.groups[g].hyperparameters) {
        add_flat(numbers, group + named.name, named.value);
      }
    }
    for (const trace::OptimizerStateEntry& entry : layout.state) {
      add_flat(numbers, layout.path + ".state[" + entry.parameter + "]." + entry.key, entry.value);
    }
  }
  for (const trace::Input& input : recording.inputs) add_flat(numbers, input.path, input.value);
  for (const trace::NamedValue& value : recording.host_values) {
    add_flat(numbers, value.name, value.value);
  }
  for (const trace::HostRead& read : recording.reads) {
    add_flat(numbers, "ops[" + std::to_string(read.op) + "]", recording.ops[read.op].outputs[0]);
  }
  return numbers;
}

double value_of(const std::string& path, const Numbers& numbers) {
  const auto found = numbers.find(path);
  return found == numbers.end() ? 0 : found->second;
}

std::vector<double> values_of(const std::vector<trace::Leaf>& leaves, const Numbers& numbers) {
  std::vector<double> values;
  values.reserve(leaves.size());
  for (const trace::Leaf& leaf : leaves) values.push_back(value_of(leaf.path, numbers));
  return values;
}

}  // namespace

Bindings::Bindings(trace::Recording& recording)
    : recording_(recording),
      numbers_(numbers_of(recording)),
      values_(values_of(recording.leaves, numbers_)) {
  for (trace::Index i = 0; i < recording.leaves.size(); ++i) {
    leaves_.emplace(std::pair(recording.leaves[i].kind, recording.leaves[i].path), i);
  }
  for (trace::Index i = 0; i < recording.formulas.size(); ++i) {
    formulas_.emplace(key_of(recording.formulas[i]), i);
  }
  for (std::size_t i = 0; i < recording.scalars.size(); ++i) {
    places_.emplace(place_of(recording.scalars[i]), i);
  }
}

trace::Index Bindings::leaf(trace::LeafKind kind, const std::string& path) {
  const auto next = static_cast<trace::Index>(recording_.leaves.size());
  const auto [entry, is_new] = leaves_.try_emplace({kind, path}, next);
  if (is_new) {
    recording_.leaves.push_back({kind, path});
    values_.push_back(value_of(path, numbers_));
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
  if (site.op == trace::kNone) return {trace::kNone, site.buffer};
  return {site.op, site.argument, site.item};
}

bool Bindings::is_bound(const trace::ScalarSite& site) const {
  return places_.contains(place_of(site));
}

void Bindings::bind(trace::ScalarSite site, const trace::Formula& formula) {
  if (!places_.try_emplace(place_of(site), recording_.scalars.size()).second) return;
  site.formula = this->formula(formula);
  recording_.scalars.push_back(site);
}

void Bindings::require(const trace::Formula& formula, bool is_nonzero) {
  const trace::Predicate predicate{this->formula(formula), is_nonzero};
  for (const trace::Predicate& known : recording_.predicates) {
    if (known == predicate) return;
  }
  recording_.predicates.push_back(predicate);
}

void Bindings::advance(const std::string& path) {
  for (trace::Advance& advance : recording_.advances) {
    if (advance.path != path) continue;
    ++advance.by;
    return;
  }
  recording_.advances.push_back({path, 1});
}

double Bindings::recorded(const trace::Formula& formula) const {
  return trace::evaluate(formula, values_);
}

std::vector<double> recorded_leaves(const trace::Recording& recording) {
  return values_of(recording.leaves, numbers_of(recording));
}

RecordedNumbers::RecordedNumbers(const trace::Recording& recording)
    : numbers_(numbers_of(recording)) {}

double RecordedNumbers::operator[](const std::string& path) const {
  return value_of(path, numbers_);
}

trace::Value recorded_number(const trace::Recording& recording, const trace::ScalarSite& site) {
  if (site.op == trace::kNone) {
    const trace::Buffer& buffer = recording.buffers[site.buffer];
    for (const trace::Tensor& tensor : recording.tensors) {
      if (tensor.buffer != site.buffer) continue;
      return trace::element_of(buffer.content->data(), tensor.dtype);
    }
    return {};
  }
  const trace::Value& value = recording.ops[site.op].inputs[site.argument];
  return site.item == trace::kNone ? value : std::get<trace::List>(value.data)[site.item];
}

bool gives_recorded(const trace::Recording& recording, const Bindings& bindings,
                    const trace::Formula& formula, const trace::ScalarSite& site) {
  const double value = bindings.recorded(formula);
  if (site.op != trace::kNone) {
    const double found = trace::number_of(recorded_number(recording, site));
    return std::bit_cast<std::uint64_t>(found) == std::bit_cast<std::uint64_t>(value);
  }
  const trace::Buffer& buffer = recording.buffers[site.buffer];
  const auto tensor = std::ranges::find(recording.tensors, site.buffer, &trace::Tensor::buffer);
  std::vector<std::byte> bytes(buffer.bytes);
  return buffer.content && tensor != recording.tensors.end() &&
         trace::bytes_of(tensor->dtype) == buffer.bytes &&
         trace::put_element(value, tensor->dtype, bytes.data()) && bytes == *buffer.content;
}

}  // namespace steptape::replayer
