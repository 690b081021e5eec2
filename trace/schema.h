#pragma once

#include <string_view>
#include <vector>

/// What the schema of an operator says, read from its text: for parts that have no LibTorch at
/// hand.
namespace steptape::trace {

struct SchemaArgument {
  std::string_view name;    ///< "self"
  bool is_written = false;  ///< annotated as written: `Tensor(a!) self`
  bool is_output = false;   ///< annotated and passed by keyword alone: `*, Tensor(a!) out`
  std::string_view type;    ///< "Tensor(a!)", "ScalarType?", "Tensor?[]"
  bool is_keyword = false;  ///< passed by keyword alone
};

/// The arguments of "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> ...",
/// in order. Names and types are parts of `schema`, which must outlive them. Of text that is no
/// schema, what reads as one.
std::vector<SchemaArgument> arguments_of(std::string_view schema);

}  // namespace steptape::trace
