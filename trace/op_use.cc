#include "trace/op_use.h"

#include <algorithm>

#include "trace/schema.h"

namespace steptape::trace {
namespace {

void add(std::vector<TensorId>& tensors, TensorId id) {
  if (id != kNoTensor && std::ranges::find(tensors, id) == tensors.end()) tensors.push_back(id);
}

OpUse use_of(const Op& op, const std::vector<SchemaArgument>& arguments) {
  OpUse use;
  for (std::size_t a = 0; a < op.inputs.size(); ++a) {
    const SchemaArgument argument = a < arguments.size() ? arguments[a] : SchemaArgument();
    for_each_tensor(op.inputs[a], [&](TensorId id) {
      if (!argument.is_output) add(use.reads, id);
      if (argument.is_written) add(use.writes, id);
    });
  }
  for (const TensorId id : op.unannotated_writes) add(use.writes, id);
  return use;
}

}  // namespace

std::vector<OpUse> uses_of(const Recording& recording) {
  std::vector<std::vector<SchemaArgument>> arguments;
  arguments.reserve(recording.operators.size());
  for (const Operator& op : recording.operators) arguments.push_back(arguments_of(op.schema));
  std::vector<OpUse> uses;
  uses.reserve(recording.ops.size());
  for (const Op& op : recording.ops) uses.push_back(use_of(op, arguments[op.op]));
  return uses;
}

}  // namespace steptape::trace
