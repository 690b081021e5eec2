#include "storage/trace/encode.h"

#include <bit>

#include "storage/files/wire.h"
#include "storage/trace/value_codec.h"

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
  out.set_call(op.call);
  out.set_scope(plus_one(op.scope));
  out.set_phase(static_cast<std::uint32_t>(op.phase));
  out.set_sequence(plus_one(op.sequence));
}

void encode(const trace::GeneratorState& generator, proto::GeneratorState& out,
            const EncodeBytes& bytes) {
  out.set_path(generator.path);
  encode(generator.digest, *out.mutable_digest());
  if (generator.content) bytes(generator.content, *out.mutable_content());
}

void encode(const trace::Seek& seek, proto::Seek& out) {
  out.set_before_op(seek.before_op);
  out.set_generator(seek.generator);
  encode(seek.state, *out.mutable_state());
  out.set_is_earlier(seek.is_earlier);
  out.set_after_op(plus_one(seek.after_op));
}

void encode(const trace::Input& input, proto::Input& out) {
  out.set_path(input.path);
  encode(input.value, *out.mutable_value());
  out.set_requires_grad(input.requires_grad);
  out.set_same_as(input.same_as);
  if (!input.range) return;
  out.mutable_range()->set_smallest(input.range->first);
  out.mutable_range()->set_largest(input.range->second);
}

void encode(const trace::Tracked& tracked, proto::Tracked& out) {
  out.set_path(tracked.path);
  out.set_role(static_cast<std::uint32_t>(tracked.role));
  out.set_tensor(plus_one(tracked.tensor));
  out.set_requires_grad(tracked.requires_grad);
  for (const std::string& path : tracked.aliases) out.add_aliases(path);
  out.set_not_in_state_dict(!tracked.in_state_dict);
}

void encode(const trace::NamedValue& named, proto::NamedValue& out) {
  out.set_name(named.name);
  encode(named.value, *out.mutable_value());
}

void encode(const trace::Module& module, proto::Module& out) {
  out.set_path(module.path);
  out.set_type(module.type);
  out.set_training(module.training);
  for (const trace::NamedValue& option : module.options) encode(option, *out.add_options());
  for (const std::string& path : module.aliases) out.add_aliases(path);
}

void encode(const trace::Effect& effect, proto::Effect& out) {
  out.set_name(effect.name);
  out.set_value(effect.value);
  out.set_place(effect.place);
  out.set_decides(effect.decides);
}

void encode(const trace::ParameterGroup& group, proto::ParameterGroup& out) {
  for (const trace::NamedValue& named : group.hyperparameters) {
    encode(named, *out.add_hyperparameters());
  }
  for (const std::string& path : group.parameters) out.add_parameters(path);
}

void encode(const trace::OptimizerLayout& optimizer, proto::Optimizer& out) {
  out.set_path(optimizer.path);
  out.set_type(optimizer.type);
  out.set_has_formulas(optimizer.has_formulas);
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

void encode(const trace::Formula& formula, proto::Formula& out) {
  for (const trace::Node& node : formula.nodes) {
    out.add_operations(static_cast<std::uint32_t>(node.operation));
    if (node.operation == trace::Operation::kConstant) {
      out.add_constants(std::bit_cast<std::uint64_t>(node.constant.value));
    } else if (node.operation == trace::Operation::kLeaf) {
      out.add_leaves(node.leaf);
    }
  }
}

void encode(const trace::ScalarSite& site, proto::ScalarSite& out) {
  out.set_op(plus_one(site.op));
  out.set_formula(site.formula);
  if (site.op == trace::kNone) {
    out.set_buffer(site.buffer);
  } else {
    out.set_argument(site.argument);
  }
  out.set_item(plus_one(site.item));
}

void encode_numbers(const trace::Recording& recording, proto::Recording& out) {
  for (const auto& value : recording.host_values) encode(value, *out.add_host_values());
  for (const auto& fact : recording.facts) encode(fact, *out.add_facts());
  for (const trace::Leaf& leaf : recording.leaves) {
    proto::Leaf& added = *out.add_leaves();
    added.set_kind(static_cast<std::uint32_t>(leaf.kind));
    added.set_path(leaf.path);
  }
  for (const auto& formula : recording.formulas) encode(formula, *out.add_formulas());
  for (const auto& site : recording.scalars) encode(site, *out.add_scalars());
  for (const trace::Proof& proof : recording.proofs) {
    proto::Proof& added = *out.add_proofs();
    added.set_formula(proof.formula);
    for (const double value : proof.proved.values()) {
      added.add_values(std::bit_cast<std::uint64_t>(value));
    }
    added.set_turns(proof.proved.turns());
    added.set_is_pinned(proof.is_pinned);
  }
  for (const trace::Predicate& predicate : recording.predicates) {
    proto::Predicate& added = *out.add_predicates();
    added.set_formula(predicate.formula);
    added.set_is_nonzero(predicate.is_nonzero);
  }
  for (const trace::Advance& advance : recording.advances) {
    proto::Advance& added = *out.add_advances();
    added.set_path(advance.path);
    added.set_by(advance.by);
  }
  for (const trace::HostRead& read : recording.reads) {
    proto::HostRead& added = *out.add_reads();
    added.set_op(read.op);
    added.set_use(static_cast<std::uint32_t>(read.use));
  }
  for (const trace::Number& number : recording.numbers) {
    proto::Number& added = *out.add_numbers();
    encode(number.value, *added.mutable_value());
    added.set_op(plus_one(number.op));
    added.set_formula(plus_one(number.formula));
    added.set_becomes(number.becomes);
  }
  out.set_observed(recording.observed);
  for (const std::string& path : recording.updates) out.add_updates(path);
  for (const auto& effect : recording.effects) encode(effect, *out.add_effects());
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
    added.set_call(access.call);
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

proto::Step encode_step(std::string_view name, std::string_view place) {
  proto::Step out;
  out.set_name(name.data(), name.size());
  out.set_place(place.data(), place.size());
  return out;
}

proto::StepAgain encode_step_again(std::string_view name) {
  proto::StepAgain out;
  out.set_name(name.data(), name.size());
  return out;
}

proto::Recording encode_recording(const trace::Recording& recording, const EncodeBytes& bytes) {
  proto::Recording out;
  out.set_standing(static_cast<std::uint32_t>(recording.standing));
  out.set_call(recording.call);
  for (const auto& op : recording.operators) encode(op, *out.add_operators());
  for (const auto& buffer : recording.buffers) encode(buffer, *out.add_buffers(), bytes);
  for (const auto& tensor : recording.tensors) encode(tensor, *out.add_tensors());
  for (const auto& op : recording.ops) encode(op, *out.add_ops());
  for (const trace::Digest& digest : recording.op_digests) {
    put(*out.mutable_op_digests(), digest.low);
    put(*out.mutable_op_digests(), digest.high);
  }
  out.mutable_op_ns()->Assign(recording.op_ns.begin(), recording.op_ns.end());
  for (const auto& seek : recording.seeks) encode(seek, *out.add_seeks());
  for (const auto& generator : recording.generators) {
    encode(generator, *out.add_generators(), bytes);
  }
  for (const auto& input : recording.inputs) encode(input, *out.add_inputs());
  for (const auto& tracked : recording.tracked) encode(tracked, *out.add_tracked());
  for (const auto& module : recording.modules) encode(module, *out.add_modules());
  for (const auto& optimizer : recording.optimizers) encode(optimizer, *out.add_optimizers());
  for (const auto& scope : recording.scopes) out.add_scopes(scope);
  for (const auto& fact : recording.ambient) encode(fact, *out.add_ambient());
  encode_numbers(recording, out);
  encode_outcome(recording, out);
  return out;
}

proto::SavedState encode_saved(const trace::Saved& saved, const EncodeBytes& bytes) {
  proto::SavedState out;
  out.set_path(saved.path);
  out.set_address_mod_64(saved.address_mod_64);
  if (saved.content) bytes(saved.content, *out.mutable_content());
  if (trace::is_number(saved.number)) encode(saved.number, *out.mutable_number());
  return out;
}

}  // namespace steptape::storage
