#pragma once

#include <span>
#include <string>
#include <string_view>

#include "diff/numerics/numeric_differences.h"

/// Numeric differences in words.
namespace steptape::diff {

/// An input of an op, and what it was on both sides.
struct InputWords {
  std::string name;  ///< "self", "tensors[1]", "generator default"; empty for no input
  std::string a;     ///< "op 12 aten::mm", "model.fc1.weight at entry", "0.1"
  std::string b;
};

InputWords words_of_input(const NumericOp& op, const OpStream& a, const OpStream& b);

/// Why the op left other bits: "inputs are equal", "self differs: op 12 aten::mm", "alpha differs:
/// 0.1 → 0.2", "self is not known: model.fc1.weight at entry".
std::string words_of_cause(const NumericOp& op, const OpStream& a, const OpStream& b);

/// "op 31 → 33 aten::addmm in model.fc1@2, backward, train.py:44"
std::string words_of_place(const NumericOp& op, const OpStream& a, const OpStream& b);

/// "inputs[0], model.fc1.weight (and 12 more)": at most so many of the buffers that differ at
/// entry, noise left out; empty where none does.
std::string words_of_entered(const NumericDifferences& found, const trace::Recording& a,
                             std::size_t most);

/// "inputs[0], model.fc1.weight (and 12 more)": at most so many of the names.
std::string words_of_some(std::span<const std::string> names, std::size_t most);

/// The line of the program at the end of a scope: "train.py:41"; empty where it has none.
std::string_view line_of(std::string_view scope) noexcept;

}  // namespace steptape::diff
