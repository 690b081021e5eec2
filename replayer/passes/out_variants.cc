#include <mutex>
#include <unordered_map>

#include "live/operators.h"
#include "replayer/passes/passes.h"

namespace steptape::replayer {
namespace {

using Overloads = std::unordered_map<std::string, std::vector<c10::OperatorName>>;

/// Every operator of the process by name without overload. Listing them takes milliseconds: once.
const Overloads& overloads() {
  static const Overloads all = [] {
    Overloads result;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      result[name.name].push_back(name);
    }
    return result;
  }();
  return all;
}

bool is_out_variant_of(const c10::FunctionSchema& out, const c10::FunctionSchema& schema) {
  const std::size_t count = schema.arguments().size();
  if (out.arguments().size() != count + schema.returns().size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const c10::Argument& a = out.arguments()[i];
    const c10::Argument& b = schema.arguments()[i];
    if (a.name() != b.name() || *a.type() != *b.type()) return false;
  }
  for (std::size_t i = count; i < out.arguments().size(); ++i) {
    if (!out.arguments()[i].is_out()) return false;
    if (out.arguments()[i].type()->kind() != c10::TypeKind::TensorType) return false;
  }
  return true;
}

std::optional<c10::OperatorHandle> find_out_variant(const c10::OperatorHandle& op) {
  const auto found = overloads().find(op.schema().name());
  if (found == overloads().end()) return std::nullopt;
  for (const c10::OperatorName& name : found->second) {
    auto candidate = c10::Dispatcher::singleton().findSchema(name);
    if (!candidate || !is_out_variant_of(candidate->schema(), op.schema())) continue;
    if (candidate->hasTag(at::Tag::generated)) return std::nullopt;
    return candidate;
  }
  return std::nullopt;
}

/// Whether each result is one tensor that fills temporary memory of its own from the first byte.
bool results_are_plain_temporaries(const Program& program, std::size_t index) {
  const trace::Recording& recording = *program.recording;
  std::vector<trace::BufferId> seen;
  for (const trace::Value& value : recording.ops[index].outputs) {
    const auto* result = std::get_if<trace::TensorRef>(&value.data);
    if (result == nullptr || result->id == trace::kNoTensor) return false;
    const trace::Tensor& tensor = recording.tensors[result->id];
    const trace::Buffer& buffer = recording.buffers[tensor.buffer];
    if (program.buffers[tensor.buffer].defined != static_cast<std::int64_t>(index)) return false;
    if (buffer.role != trace::Role::kTemporary || tensor.offset != 0) return false;
    if (tensor.conj || tensor.neg || tensor.wrapped_number) return false;
    // an op that makes more memory than its result needs (mse_loss: one element for each term of
    // its sum) would have to grow the result, and LibTorch warns
    if (buffer.bytes > tensor.byte_range().second) return false;
    if (std::find(seen.begin(), seen.end(), tensor.buffer) != seen.end()) return false;
    seen.push_back(tensor.buffer);
  }
  return !seen.empty();
}

void place_results(Program& program, std::size_t index) {
  for (const trace::Value& value : program.recording->ops[index].outputs) {
    const trace::TensorId id = std::get<trace::TensorRef>(value.data).id;
    program.buffers[program.recording->tensors[id].buffer].placement = Placement::kArena;
  }
}

}  // namespace

void use_out_variants(Program& program) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& instruction = program.instructions[i];
    if (instruction.treatment != Treatment::kCall) continue;
    const live::Effects& effects = live::effects_of(instruction.callee);
    if (effects.is_dynamic_shape || effects.is_random || !results_are_plain_temporaries(program, i))
      continue;
    if (effects.makes_unwritten) {
      instruction.treatment = Treatment::kGeometry;
      place_results(program, i);
    } else if (const auto out = find_out_variant(instruction.callee)) {
      instruction = {Treatment::kOut, *out};
      place_results(program, i);
    }
  }
}

}  // namespace steptape::replayer
