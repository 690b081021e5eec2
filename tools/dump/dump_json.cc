#include "tools/cli/json.h"
#include "tools/dump/dumps.h"
#include "tools/dump/info_json.h"
#include "tools/dump/summary.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

Json index_json(trace::Index index) { return number_or_null(index, trace::kNone); }

Json content_json(const trace::Blob& blob, trace::Contents contents) {
  if (!blob) return nullptr;
  if (contents == trace::Contents::kBytes) return trace::hex_of(*blob).substr(1);
  return {{"bytes", blob->size()}, {"digest", text_of(trace::digest_of(*blob))}};
}

Json buffer_json(const trace::Buffer& buffer, trace::Contents contents) {
  return {{"bytes", buffer.bytes},
          {"device", text_of(buffer.device)},
          {"address_mod_64", buffer.address_mod_64},
          {"role", name_of(buffer.role)},
          {"path", buffer.path},
          {"digest", buffer.digest ? Json(text_of(*buffer.digest)) : Json()},
          {"content", content_json(buffer.content, contents)}};
}

Json tensor_json(const trace::Tensor& tensor) {
  return {{"buffer", tensor.buffer}, {"dtype", name_of(tensor.dtype)},
          {"sizes", tensor.sizes},   {"strides", tensor.strides},
          {"offset", tensor.offset}, {"conj", tensor.conj},
          {"neg", tensor.neg},       {"wrapped_number", tensor.wrapped_number}};
}

Json op_json(const trace::Recording& recording, const trace::Op& op) {
  return {{"op", recording.operator_of(op).full_name()},
          {"inputs", each(op.inputs, trace::print_value)},
          {"outputs", each(op.outputs, trace::print_value)},
          {"unannotated_writes", op.unannotated_writes},
          {"phase", op.phase == trace::Phase::kForward ? "forward" : "backward"},
          {"module", index_json(op.module)},
          {"call", op.call},
          {"scope", index_json(op.scope)},
          {"sequence", op.sequence}};
}

Json optimizer_json(const trace::OptimizerLayout& optimizer) {
  const auto group_json = [](const trace::ParameterGroup& group) {
    return Json{{"hyperparameters", by_name(group.hyperparameters, trace::print_value)},
                {"parameters", group.parameters}};
  };
  const auto entry_json = [](const trace::OptimizerStateEntry& entry) {
    return Json{{"parameter", entry.parameter},
                {"key", entry.key},
                {"value", trace::print_value(entry.value)}};
  };
  return {{"path", optimizer.path},
          {"type", optimizer.type},
          {"has_formulas", optimizer.has_formulas},
          {"groups", each(optimizer.groups, group_json)},
          {"state", each(optimizer.state, entry_json)}};
}

Json input_json(const trace::Input& input) {
  Json json = {{"path", input.path},
               {"value", trace::print_value(input.value)},
               {"requires_grad", input.requires_grad},
               {"changes_requires_grad", input.changes_requires_grad},
               {"range", nullptr}};
  if (input.range) json["range"] = {input.range->first, input.range->second};
  return json;
}

Json named_json(const trace::NamedValue& named) {
  return {{"name", named.name}, {"value", trace::print_value(named.value)}};
}

Json site_json(const trace::ScalarSite& site) {
  if (site.op == trace::kNone) return {{"buffer", site.buffer}, {"formula", site.formula}};
  return {{"op", site.op},
          {"argument", site.argument},
          {"item", index_json(site.item)},
          {"formula", site.formula}};
}

Json leaf_json(const trace::Leaf& leaf) {
  return {{"kind", name_of(leaf.kind)}, {"path", leaf.path}};
}

void add_numbers(Json& json, const trace::Recording& recording) {
  json["host_values"] = each(recording.host_values, named_json);
  json["facts"] = each(recording.facts, named_json);
  json["lookups"] = each(recording.lookups, [&](const trace::Lookup& lookup) {
    return Json{{"name", lookup.name}, {"under", each(lookup.under, leaf_json)}};
  });
  json["leaves"] = leaves_json(recording);
  json["formulas"] = formulas_json(recording);
  json["scalars"] = each(recording.scalars, site_json);
  json["proofs"] = each(recording.proofs, [](const trace::Proof& proof) {
    const auto words = [](double value) { return trace::print_value({trace::Real{value}}); };
    return Json{{"formula", proof.formula},
                {"values", each(proof.proved.values(), words)},
                {"turns", proof.proved.turns()},
                {"is_pinned", proof.is_pinned}};
  });
  json["predicates"] = predicates_json(recording);
  json["advances"] = advances_json(recording);
  json["reads"] = reads_json(recording);
  json["numbers"] = each(recording.numbers, [](const trace::Number& number) {
    return Json{{"value", trace::print_value(number.value)},
                {"op", index_json(number.op)},
                {"formula", index_json(number.formula)}};
  });
  json["observed"] = recording.observed;
  json["updates"] = recording.updates;
  json["held"] = each(recording.held, [](const trace::HeldPlace& held) {
    return Json{{"path", held.path},
                {"found", held.found},
                {"left", held.left},
                {"rule", name_of(held.rule)}};
  });
  json["places"] = each(recording.places, [](const trace::HeldInput& place) {
    return Json{{"path", place.path},
                {"input", index_json(place.input)},
                {"result", index_json(place.result)},
                {"dropped", place.is_dropped},
                {"carried", place.is_carried},
                {"in", index_json(place.place)}};
  });
  json["effects"] = each(recording.effects, [](const trace::Effect& effect) {
    return Json{{"name", effect.name}, {"value", effect.value}, {"place", effect.place}};
  });
}

void add_objects(Json& json, const trace::Recording& recording) {
  json["inputs"] = each(recording.inputs, input_json);
  json["results"] = each(recording.results, index_json);
  json["tracked"] = each(recording.tracked, [](const trace::Tracked& tracked) {
    return Json{{"path", tracked.path},
                {"role", name_of(tracked.role)},
                {"tensor", index_json(tracked.tensor)},
                {"requires_grad", tracked.requires_grad},
                {"aliases", tracked.aliases}};
  });
  json["exit_gradients"] = each(recording.exit_gradients, [](const trace::ExitGradient& gradient) {
    return Json{{"parameter", gradient.parameter},
                {"tensor", index_json(gradient.tensor)},
                {"is_memory", gradient.is_memory}};
  });
  json["modules"] = each(recording.modules, [](const trace::Module& module) {
    return Json{{"path", module.path},
                {"type", module.type},
                {"training", module.training},
                {"options", each(module.options, named_json)},
                {"aliases", module.aliases}};
  });
  json["module_access"] = each(recording.module_access, [](const trace::ModuleAccess& access) {
    return Json{{"module", access.module}, {"call", access.call}, {"first_op", access.first_op}};
  });
  json["optimizers"] = each(recording.optimizers, optimizer_json);
  add_numbers(json, recording);
  json["scopes"] = recording.scopes;
  json["ambient"] = facts_json(recording.ambient);
  json["refusals"] = refusals_json(recording.refusals);
}

Json recording_json(const trace::Recording& recording, trace::Contents contents) {
  Json json;
  json["status"] = name_of(recording.status);
  json["call"] = recording.call == 0 ? Json() : Json(recording.call);
  json["operators"] = each(recording.operators, [](const trace::Operator& op) {
    return Json{{"name", op.name}, {"overload", op.overload}, {"schema", op.schema}};
  });
  json["buffers"] = each(recording.buffers, [contents](const trace::Buffer& buffer) {
    return buffer_json(buffer, contents);
  });
  json["tensors"] = each(recording.tensors, tensor_json);
  json["ops"] =
      each(recording.ops, [&recording](const trace::Op& op) { return op_json(recording, op); });
  json["generators"] = each(recording.generators, [](const trace::GeneratorState& generator) {
    return Json{{"path", generator.path},
                {"digest", text_of(generator.digest)},
                {"is_kept", generator.content != nullptr}};
  });
  json["seeks"] = each(recording.seeks, [](const trace::Seek& seek) {
    return Json{{"before_op", seek.before_op},
                {"generator", seek.generator},
                {"state", text_of(seek.state)},
                {"is_earlier", seek.is_earlier},
                {"after_op", index_json(seek.after_op)}};
  });
  json["op_digests"] =
      each(recording.op_digests, [](const trace::Digest& digest) { return text_of(digest); });
  json["op_ns"] = recording.op_ns;
  add_objects(json, recording);
  return json;
}

}  // namespace

Json leaves_json(const trace::Recording& recording) { return each(recording.leaves, leaf_json); }

Json formulas_json(const trace::Recording& recording) {
  return each(recording.formulas, [&recording](const trace::Formula& formula) {
    return text_of(formula, recording.leaves);
  });
}

Json predicates_json(const trace::Recording& recording) {
  return each(recording.predicates, [](const trace::Predicate& predicate) {
    return Json{{"formula", predicate.formula}, {"is_nonzero", predicate.is_nonzero}};
  });
}

Json advances_json(const trace::Recording& recording) {
  return each(recording.advances, [](const trace::Advance& advance) {
    return Json{{"path", advance.path}, {"by", advance.by}};
  });
}

Json reads_json(const trace::Recording& recording) {
  return each(recording.reads, [](const trace::HostRead& read) {
    return Json{{"op", read.op}, {"use", name_of(read.use)}};
  });
}

Json dump_json(const trace::Trace& trace, trace::Contents contents) {
  return {{"producer", facts_json(trace.producer)},
          {"run", facts_json(trace.run)},
          {"environment", facts_json(trace.environment)},
          {"steps", steps_json(trace,
                               [contents](const trace::Step& step, std::size_t position) {
                                 return recording_json(step.recordings[position], contents);
                               })},
          {"state", each(trace.state, [contents](const trace::Saved& saved) {
             if (trace::is_number(saved.number)) {
               return Json{{"path", saved.path}, {"number", trace::print_value(saved.number)}};
             }
             return Json{{"path", saved.path},
                         {"address_mod_64", saved.address_mod_64},
                         {"content", content_json(saved.content, contents)}};
           })}};
}

}  // namespace steptape::tools
