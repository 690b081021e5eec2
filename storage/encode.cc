#include "storage/encode.h"

#include "storage/value_codec.h"

namespace steptape::storage {
namespace {

using storage::encode;

void encode(const trace::Operator& op, proto::Operator& out) {
  out.set_name(op.name);
  out.set_overload(op.overload);
  out.set_schema(op.schema);
}

void encode(const trace::Buffer& buffer, proto::Buffer& out, const EncodeBytes& bytes) {
  out.set_bytes(buffer.bytes);
  encode(buffer.device, *out.mutable_device());
  out.set_address_mod_64(buffer.address_mod_64);
  out.set_role(static_cast<std::uint32_t>(buffer.role));
  out.set_path(buffer.path);
  if (buffer.digest) encode(*buffer.digest, *out.mutable_digest());
  if (buffer.content) bytes(buffer.content, *out.mutable_content());
}

void encode(const trace::Tensor& tensor, proto::Tensor& out) {
  out.set_buffer(tensor.buffer);
  out.set_dtype(static_cast<std::uint32_t>(tensor.dtype));
  out.mutable_sizes()->Add(tensor.sizes.begin(), tensor.sizes.end());
  out.mutable_strides()->Add(tensor.strides.begin(), tensor.strides.end());
  out.set_offset(tensor.offset);
  out.set_conj(tensor.conj);
  out.set_neg(tensor.neg);
  out.set_wrapped_number(tensor.wrapped_number);
}

void encode(const trace::Op& op, proto::Op& out) {
  out.set_operator_index(op.op);
  for (const trace::Value& value : op.inputs) encode(value, *out.add_inputs());
  for (const trace::Value& value : op.outputs) encode(value, *out.add_outputs());
  out.mutable_unannotated_writes()->Add(op.unannotated_writes.begin(), op.unannotated_writes.end());
  out.set_module(plus_one(op.module));
  out.set_scope(plus_one(op.scope));
  out.set_phase(static_cast<std::uint32_t>(op.phase));
  out.set_sequence(plus_one(op.sequence));
}

void encode(const trace::Seek& seek, proto::Seek& out) {
  out.set_before_op(seek.before_op);
  out.set_generator(seek.generator);
  encode(seek.state, *out.mutable_state());
}

void encode(const trace::Input& input, proto::Input& out) {
  out.set_path(input.path);
  encode(input.value, *out.mutable_value());
  out.set_requires_grad(input.requires_grad);
  if (!input.range) return;
  out.mutable_range()->set_smallest(input.range->first);
  out.mutable_range()->set_largest(input.range->second);
}

void encode(const trace::Tracked& tracked, proto::Tracked& out) {
  out.set_path(tracked.path);
  out.set_role(static_cast<std::uint32_t>(tracked.role));
  out.set_tensor(plus_one(tracked.tensor));
  out.set_requires_grad(tracked.requires_grad);
}

void encode(const trace::Module& module, proto::Module& out) {
  out.set_path(module.path);
  out.set_type(module.type);
  out.set_training(module.training);
}

void encode(const trace::ParameterGroup& group, proto::ParameterGroup& out) {
  for (const trace::NamedValue& named : group.hyperparameters) {
    proto::NamedValue& added = *out.add_hyperparameters();
    added.set_name(named.name);
    encode(named.value, *added.mutable_value());
  }
  for (const std::string& path : group.parameters) out.add_parameters(path);
}

void encode(const trace::OptimizerLayout& optimizer, proto::Optimizer& out) {
  out.set_path(optimizer.path);
  out.set_type(optimizer.type);
  for (const trace::ParameterGroup& group : optimizer.groups) encode(group, *out.add_groups());
  for (const trace::OptimizerStateEntry& entry : optimizer.state) {
    proto::OptimizerState& added = *out.add_state();
    added.set_parameter(entry.parameter);
    added.set_key(entry.key);
    encode(entry.value, *added.mutable_value());
  }
}

void encode(const Refusal& refusal, proto::Refusal& out) {
  out.set_code(static_cast<std::uint32_t>(refusal.code));
  out.set_message(refusal.message);
  out.set_op(refusal.op);
  out.set_op_index(plus_one(refusal.op_index));
  out.set_module(refusal.module);
  out.set_place(refusal.place);
}

void encode_outcome(const trace::Recording& recording, proto::Recording& out) {
  for (trace::TensorId result : recording.results) out.add_results(plus_one(result));
  for (const trace::ExitGradient& gradient : recording.exit_gradients) {
    proto::ExitGradient& added = *out.add_exit_gradients();
    added.set_parameter(gradient.parameter);
    added.set_tensor(plus_one(gradient.tensor));
  }
  for (const trace::ModuleAccess& access : recording.module_access) {
    proto::ModuleAccess& added = *out.add_module_access();
    added.set_module(access.module);
    added.set_first_op(access.first_op);
  }
  for (const Refusal& refusal : recording.refusals) encode(refusal, *out.add_refusals());
}

}  // namespace

proto::Head encode_head(const trace::Trace& trace) {
  proto::Head out;
  for (const trace::Fact& fact : trace.producer) encode(fact, *out.add_producer());
  for (const trace::Fact& fact : trace.run) encode(fact, *out.add_run());
  for (const trace::Fact& fact : trace.environment) encode(fact, *out.add_environment());
  return out;
}

proto::Step encode_step(const trace::Step& step) {
  proto::Step out;
  out.set_name(step.name);
  out.set_place(step.place);
  return out;
}

proto::Recording encode_recording(const trace::Recording& recording, const EncodeBytes& bytes) {
  proto::Recording out;
  out.set_standing(static_cast<std::uint32_t>(recording.standing));
  for (const auto& op : recording.operators) encode(op, *out.add_operators());
  for (const auto& buffer : recording.buffers) encode(buffer, *out.add_buffers(), bytes);
  for (const auto& tensor : recording.tensors) encode(tensor, *out.add_tensors());
  for (const auto& op : recording.ops) encode(op, *out.add_ops());
  for (const auto& seek : recording.seeks) encode(seek, *out.add_seeks());
  for (const auto& input : recording.inputs) encode(input, *out.add_inputs());
  for (const auto& tracked : recording.tracked) encode(tracked, *out.add_tracked());
  for (const auto& module : recording.modules) encode(module, *out.add_modules());
  for (const auto& optimizer : recording.optimizers) encode(optimizer, *out.add_optimizers());
  for (const auto& scope : recording.scopes) out.add_scopes(scope);
  for (const auto& fact : recording.ambient) encode(fact, *out.add_ambient());
  encode_outcome(recording, out);
  return out;
}

proto::SavedState encode_saved(const trace::Saved& saved, const EncodeBytes& bytes) {
  proto::SavedState out;
  out.set_path(saved.path);
  out.set_address_mod_64(saved.address_mod_64);
  if (saved.content) bytes(saved.content, *out.mutable_content());
  return out;
}

}  // namespace steptape::storage
