#include "storage/trace/decode.h"

#include <fmt/format.h>

#include <bit>

#include "steptape/error.h"
#include "storage/files/wire.h"
#include "storage/trace/value_codec.h"

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
  trace::Input input{in.path(), decode(in.value()), in.requires_grad(), std::nullopt, in.same_as()};
  if (in.has_range()) input.range = {in.range().smallest(), in.range().largest()};
  return input;
}

trace::Tracked decode(const proto::Tracked& in) {
  return {
      in.path(),          decode_small<trace::Role>("role", in.role()), minus_one(in.tensor()),
      in.requires_grad(), {in.aliases().begin(), in.aliases().end()},   !in.not_in_state_dict()};
}

trace::ExitGradient decode(const proto::ExitGradient& in) {
  return {in.parameter(), minus_one(in.tensor())};
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

trace::Recording decode_recording(const proto::Recording& in, const DecodeBytes& bytes) {
  trace::Recording recording;
  recording.standing = decode_small<trace::Standing>("standing", in.standing());
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
  decode_each(recording.leaves, in.leaves());
  decode_each(recording.formulas, in.formulas());
  decode_each(recording.scalars, in.scalars());
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
