#include "storage/trace/messages.h"

#include <fmt/format.h>

#include <bit>

#include "steptape/error.h"
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
  out.set_changes_requires_grad(input.changes_requires_grad);
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

void encode(const trace::Window& window, proto::Window& out) {
  out.set_buffer(window.buffer);
  out.set_op(window.op);
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

void encode(const trace::Leaf& leaf, proto::Leaf& out) {
  out.set_kind(static_cast<std::uint32_t>(leaf.kind));
  out.set_path(leaf.path);
}

void encode_numbers(const trace::Recording& recording, proto::Recording& out) {
  for (const auto& value : recording.host_values) encode(value, *out.add_host_values());
  for (const auto& fact : recording.facts) encode(fact, *out.add_facts());
  for (const trace::Leaf& leaf : recording.leaves) encode(leaf, *out.add_leaves());
  for (const trace::Lookup& lookup : recording.lookups) {
    proto::Lookup& added = *out.add_lookups();
    added.set_name(lookup.name);
    for (const trace::Leaf& leaf : lookup.under) encode(leaf, *added.add_under());
  }
  for (const auto& formula : recording.formulas) encode(formula, *out.add_formulas());
  for (const auto& site : recording.scalars) encode(site, *out.add_scalars());
  for (const auto& window : recording.windows) encode(window, *out.add_windows());
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
  for (const trace::HeldInput& place : recording.places) {
    proto::HeldInput& added = *out.add_places();
    added.set_path(place.path);
    added.set_input(place.input);
    added.set_result(plus_one(place.result));
    added.set_is_otherwise(place.is_carried != (place.result != trace::kNone));
    added.set_is_dropped(place.is_dropped);
    added.set_place(plus_one(place.place));
  }
  for (const trace::HeldPlace& held : recording.held) {
    proto::HeldPlace& added = *out.add_held();
    added.set_path(held.path);
    added.set_found(held.found);
    added.set_left(held.left);
    added.set_rule(static_cast<std::uint32_t>(held.rule));
  }
}

void encode_outcome(const trace::Recording& recording, proto::Recording& out) {
  for (trace::TensorId result : recording.results) out.add_results(plus_one(result));
  for (const trace::ExitGradient& gradient : recording.exit_gradients) {
    proto::ExitGradient& added = *out.add_exit_gradients();
    added.set_parameter(gradient.parameter);
    added.set_tensor(plus_one(gradient.tensor));
    added.set_is_memory(gradient.is_memory);
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

proto::StepAgain encode_account(const trace::Step& step) {
  proto::StepAgain out = encode_step_again(step.name);
  proto::Account& account = *out.mutable_account();
  account.set_recorded(step.account.recorded);
  account.set_trials(step.account.trials);
  account.set_audits(step.account.audits);
  account.set_replayed(step.account.replayed);
  account.set_eager(step.account.eager);
  for (const trace::Reason& reason : step.account.reasons) {
    proto::Reason& added = *account.add_reasons();
    added.set_is_refusal(reason.is_refusal);
    added.set_code(reason.code);
    added.set_text(reason.text);
    added.set_where(reason.where);
    added.set_place(reason.place);
    added.set_source(reason.source);
    added.set_remedy(reason.remedy);
    added.set_times(reason.times);
  }
  return out;
}

proto::Recording encode_recording(const trace::Recording& recording, const EncodeBytes& bytes) {
  proto::Recording out;
  out.set_status(static_cast<std::uint32_t>(recording.status));
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
  op.call = in.call();
  op.scope = minus_one(in.scope());
  op.phase = decode_small<trace::Phase>("phase", in.phase());
  op.sequence = minus_one(in.sequence());
  return op;
}

trace::GeneratorState decode(const proto::GeneratorState& in, const DecodeBytes& bytes) {
  trace::GeneratorState generator;
  generator.path = in.path();
  generator.digest = decode(in.digest());
  if (in.has_content()) generator.content = bytes(in.content());
  return generator;
}

trace::Seek decode(const proto::Seek& in) {
  return {in.before_op(), in.generator(), decode(in.state()), in.is_earlier(),
          minus_one(in.after_op())};
}

trace::Input decode(const proto::Input& in) {
  trace::Input input{in.path(),    decode(in.value()), in.requires_grad(),
                     std::nullopt, in.same_as(),       in.changes_requires_grad()};
  if (in.has_range()) input.range = {in.range().smallest(), in.range().largest()};
  return input;
}

trace::Tracked decode(const proto::Tracked& in) {
  return {
      in.path(),          decode_small<trace::Role>("role", in.role()), minus_one(in.tensor()),
      in.requires_grad(), {in.aliases().begin(), in.aliases().end()},   !in.not_in_state_dict()};
}

trace::ExitGradient decode(const proto::ExitGradient& in) {
  return {in.parameter(), minus_one(in.tensor()), in.is_memory()};
}

trace::NamedValue decode(const proto::NamedValue& in) { return {in.name(), decode(in.value())}; }

trace::Module decode(const proto::Module& in) {
  trace::Module module{in.path(), in.type(), in.training()};
  for (const proto::NamedValue& option : in.options()) module.options.push_back(decode(option));
  module.aliases.assign(in.aliases().begin(), in.aliases().end());
  return module;
}

trace::ModuleAccess decode(const proto::ModuleAccess& in) {
  return {in.module(), in.call(), in.first_op()};
}

trace::Leaf decode(const proto::Leaf& in) {
  return {decode_small<trace::LeafKind>("kind of leaf", in.kind()), in.path()};
}

trace::Lookup decode(const proto::Lookup& in) {
  trace::Lookup lookup{in.name(), {}};
  for (const proto::Leaf& leaf : in.under()) lookup.under.push_back(decode(leaf));
  return lookup;
}

trace::Formula decode(const proto::Formula& in) {
  trace::Formula formula;
  int constants = 0;
  int leaves = 0;
  for (const std::uint32_t number : in.operations()) {
    trace::Node& node = formula.nodes.emplace_back();
    node.operation = decode_small<trace::Operation>("operation", number);
    if (node.operation == trace::Operation::kConstant && constants < in.constants_size()) {
      node.constant.value = std::bit_cast<double>(in.constants(constants++));
    } else if (node.operation == trace::Operation::kLeaf && leaves < in.leaves_size()) {
      node.leaf = in.leaves(leaves++);
    }
  }
  return formula;
}

trace::ScalarSite decode(const proto::ScalarSite& in) {
  trace::ScalarSite site;
  site.op = minus_one(in.op());
  site.formula = in.formula();
  if (site.op == trace::kNone) {
    site.buffer = in.buffer();
  } else {
    site.argument = in.argument();
  }
  site.item = minus_one(in.item());
  return site;
}

trace::Window decode(const proto::Window& in) { return {in.buffer(), in.op()}; }

trace::Proof decode(const proto::Proof& in) {
  std::vector<double> values;
  for (const std::uint64_t bits : in.values()) values.push_back(std::bit_cast<double>(bits));
  return {in.formula(), {values, in.turns()}, in.is_pinned()};
}

trace::Predicate decode(const proto::Predicate& in) { return {in.formula(), in.is_nonzero()}; }

trace::Advance decode(const proto::Advance& in) { return {in.path(), in.by()}; }

trace::HostRead decode(const proto::HostRead& in) {
  return {in.op(), decode_small<trace::ReadUse>("use of a read", in.use())};
}

trace::Effect decode(const proto::Effect& in) {
  return {in.name(), in.value(), in.place(), in.decides()};
}

trace::Number decode(const proto::Number& in) {
  return {decode(in.value()), minus_one(in.op()), minus_one(in.formula()), in.becomes()};
}

trace::ParameterGroup decode(const proto::ParameterGroup& in) {
  trace::ParameterGroup group;
  for (const proto::NamedValue& named : in.hyperparameters()) {
    group.hyperparameters.push_back(decode(named));
  }
  group.parameters.assign(in.parameters().begin(), in.parameters().end());
  return group;
}

trace::OptimizerLayout decode(const proto::Optimizer& in) {
  trace::OptimizerLayout optimizer{in.path(), in.type(), in.has_formulas(), {}, {}};
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

std::vector<trace::Digest> decode_digests(const std::string& in) {
  constexpr std::size_t kDigestBytes = 16;
  if (in.size() % kDigestBytes != 0) {
    throw Error(ErrorCode::kDataLoss, fmt::format("digests of ops take {} bytes, no multiple of {}",
                                                  in.size(), kDigestBytes));
  }
  std::vector<trace::Digest> digests;
  digests.reserve(in.size() / kDigestBytes);
  for (std::size_t at = 0; at < in.size(); at += kDigestBytes) {
    digests.push_back(
        {get<std::uint64_t>(bytes_of(in), at), get<std::uint64_t>(bytes_of(in), at + 8)});
  }
  return digests;
}

}  // namespace

void decode_head(const proto::Head& in, trace::Trace& trace) {
  decode_each(trace.producer, in.producer());
  decode_each(trace.run, in.run());
  decode_each(trace.environment, in.environment());
}

trace::Step decode_step(const proto::Step& in) { return {in.name(), in.place(), {}}; }

trace::Account decode_account(const proto::Account& in) {
  trace::Account account{in.recorded(), in.trials(), in.audits(), in.replayed(), in.eager(), {}};
  for (const proto::Reason& reason : in.reasons()) {
    account.reasons.push_back({reason.is_refusal(), reason.code(), reason.text(), reason.where(),
                               reason.place(), reason.source(), reason.remedy(), reason.times()});
  }
  return account;
}

trace::Recording decode_recording(const proto::Recording& in, const DecodeBytes& bytes) {
  trace::Recording recording;
  recording.status = decode_small<trace::Status>("status", in.status());
  recording.call = in.call();
  decode_each(recording.operators, in.operators());
  for (const auto& buffer : in.buffers()) recording.buffers.push_back(decode(buffer, bytes));
  decode_each(recording.tensors, in.tensors());
  decode_each(recording.ops, in.ops());
  recording.op_digests = decode_digests(in.op_digests());
  recording.op_ns.assign(in.op_ns().begin(), in.op_ns().end());
  decode_each(recording.seeks, in.seeks());
  for (const auto& generator : in.generators()) {
    recording.generators.push_back(decode(generator, bytes));
  }
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
  decode_each(recording.host_values, in.host_values());
  decode_each(recording.facts, in.facts());
  decode_each(recording.effects, in.effects());
  for (const proto::HeldInput& place : in.places()) {
    const trace::Index result = minus_one(place.result());
    recording.places.push_back({.path = place.path(),
                                .input = place.input(),
                                .result = result,
                                .is_dropped = place.is_dropped(),
                                .is_carried = (result != trace::kNone) != place.is_otherwise(),
                                .place = minus_one(place.place())});
  }
  for (const proto::HeldPlace& held : in.held()) {
    recording.held.push_back(
        {held.path(), held.found(), held.left(),
         decode_small<trace::HeldPlace::Rule>("rule of a place", held.rule())});
  }
  decode_each(recording.leaves, in.leaves());
  decode_each(recording.lookups, in.lookups());
  decode_each(recording.formulas, in.formulas());
  decode_each(recording.scalars, in.scalars());
  decode_each(recording.windows, in.windows());
  decode_each(recording.proofs, in.proofs());
  decode_each(recording.predicates, in.predicates());
  decode_each(recording.advances, in.advances());
  decode_each(recording.reads, in.reads());
  decode_each(recording.numbers, in.numbers());
  recording.observed = in.observed();
  recording.updates.assign(in.updates().begin(), in.updates().end());
  return recording;
}

trace::Saved decode_saved(const proto::SavedState& in, const DecodeBytes& bytes) {
  trace::Saved saved;
  saved.path = in.path();
  saved.address_mod_64 = decode_small<std::uint8_t>("address remainder", in.address_mod_64());
  if (in.has_content()) saved.content = bytes(in.content());
  if (in.has_number()) saved.number = decode(in.number());
  return saved;
}

}  // namespace steptape::storage
