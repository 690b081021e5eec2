#include "storage/decode.h"

#include "storage/value_codec.h"

namespace steptape::storage {
namespace {

using storage::decode;

trace::Operator decode(const proto::Operator& in) {
  return {in.name(), in.overload(), in.schema()};
}

trace::Buffer decode(const proto::Buffer& in, const DecodeBytes& bytes) {
  trace::Buffer buffer;
  buffer.bytes = in.bytes();
  buffer.device = decode(in.device());
  buffer.address_mod_64 = decode_small<std::uint8_t>("address remainder", in.address_mod_64());
  buffer.role = decode_small<trace::Role>("role", in.role());
  buffer.path = in.path();
  if (in.has_digest()) buffer.digest = decode(in.digest());
  if (in.has_content()) buffer.content = bytes(in.content());
  return buffer;
}

trace::Tensor decode(const proto::Tensor& in) {
  trace::Tensor tensor;
  tensor.buffer = in.buffer();
  tensor.dtype = decode_small<trace::DType>("dtype", in.dtype());
  tensor.sizes.assign(in.sizes().begin(), in.sizes().end());
  tensor.strides.assign(in.strides().begin(), in.strides().end());
  tensor.offset = in.offset();
  tensor.conj = in.conj();
  tensor.neg = in.neg();
  tensor.wrapped_number = in.wrapped_number();
  return tensor;
}

trace::Op decode(const proto::Op& in) {
  trace::Op op;
  op.op = in.operator_index();
  for (const proto::Value& value : in.inputs()) op.inputs.push_back(decode(value));
  for (const proto::Value& value : in.outputs()) op.outputs.push_back(decode(value));
  op.unannotated_writes.assign(in.unannotated_writes().begin(), in.unannotated_writes().end());
  op.module = minus_one(in.module());
  op.scope = minus_one(in.scope());
  op.phase = decode_small<trace::Phase>("phase", in.phase());
  op.sequence = minus_one(in.sequence());
  return op;
}

trace::Seek decode(const proto::Seek& in) {
  return {in.before_op(), in.generator(), decode(in.state())};
}

trace::Input decode(const proto::Input& in) {
  trace::Input input{in.path(), decode(in.value()), in.requires_grad(), std::nullopt};
  if (in.has_range()) input.range = {in.range().smallest(), in.range().largest()};
  return input;
}

trace::Tracked decode(const proto::Tracked& in) {
  return {in.path(), decode_small<trace::Role>("role", in.role()), minus_one(in.tensor()),
          in.requires_grad()};
}

trace::ExitGradient decode(const proto::ExitGradient& in) {
  return {in.parameter(), minus_one(in.tensor())};
}

trace::Module decode(const proto::Module& in) { return {in.path(), in.type(), in.training()}; }

trace::ModuleAccess decode(const proto::ModuleAccess& in) { return {in.module(), in.first_op()}; }

trace::ParameterGroup decode(const proto::ParameterGroup& in) {
  trace::ParameterGroup group;
  for (const proto::NamedValue& named : in.hyperparameters()) {
    group.hyperparameters.push_back({named.name(), decode(named.value())});
  }
  group.parameters.assign(in.parameters().begin(), in.parameters().end());
  return group;
}

trace::OptimizerLayout decode(const proto::Optimizer& in) {
  trace::OptimizerLayout optimizer{in.path(), in.type(), {}, {}};
  for (const proto::ParameterGroup& group : in.groups()) optimizer.groups.push_back(decode(group));
  for (const proto::OptimizerState& entry : in.state()) {
    optimizer.state.push_back({entry.parameter(), entry.key(), decode(entry.value())});
  }
  return optimizer;
}

Refusal decode(const proto::Refusal& in) {
  return {decode_small<RefusalCode>("refusal", in.code()),
          in.message(),
          in.op(),
          minus_one(in.op_index()),
          in.module(),
          in.place()};
}

template <typename Items, typename Messages>
void decode_each(Items& items, const Messages& messages) {
  items.reserve(static_cast<std::size_t>(messages.size()));
  for (const auto& message : messages) items.push_back(decode(message));
}

}  // namespace

void decode_head(const proto::Head& in, trace::Trace& trace) {
  decode_each(trace.producer, in.producer());
  decode_each(trace.run, in.run());
  decode_each(trace.environment, in.environment());
}

trace::Step decode_step(const proto::Step& in) { return {in.name(), in.place(), {}}; }

trace::Recording decode_recording(const proto::Recording& in, const DecodeBytes& bytes) {
  trace::Recording recording;
  recording.standing = decode_small<trace::Standing>("standing", in.standing());
  decode_each(recording.operators, in.operators());
  for (const auto& buffer : in.buffers()) recording.buffers.push_back(decode(buffer, bytes));
  decode_each(recording.tensors, in.tensors());
  decode_each(recording.ops, in.ops());
  decode_each(recording.seeks, in.seeks());
  decode_each(recording.inputs, in.inputs());
  for (std::uint32_t result : in.results()) recording.results.push_back(minus_one(result));
  decode_each(recording.tracked, in.tracked());
  decode_each(recording.exit_gradients, in.exit_gradients());
  decode_each(recording.modules, in.modules());
  decode_each(recording.module_access, in.module_access());
  decode_each(recording.optimizers, in.optimizers());
  recording.scopes.assign(in.scopes().begin(), in.scopes().end());
  decode_each(recording.ambient, in.ambient());
  decode_each(recording.refusals, in.refusals());
  return recording;
}

trace::Saved decode_saved(const proto::SavedState& in, const DecodeBytes& bytes) {
  trace::Saved saved;
  saved.path = in.path();
  saved.address_mod_64 = decode_small<std::uint8_t>("address remainder", in.address_mod_64());
  if (in.has_content()) saved.content = bytes(in.content());
  return saved;
}

}  // namespace steptape::storage
