#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "live/operators.h"
#include "replayer/planner/passes/passes.h"

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

/// Operators whose out variant does what they do for a contiguous first argument alone.
constexpr std::array<std::string_view, 1> kSoundIfContiguous = {
    // leaves its statistics unwritten where the input is in no memory format (LibTorch 2.11:
    // batch_norm_cpu_update_stats_template in ATen/native/Normalization.cpp)
    "aten::native_batch_norm",
};

bool is_sound(const Program& program, std::size_t index) {
  const trace::Op& op = program.recording->ops[index];
  const std::string& name = program.recording->operator_of(op).name;
  if (std::ranges::find(kSoundIfContiguous, name) == kSoundIfContiguous.end()) return true;
  const trace::Tensor* input = program.recording->find_tensor(op.inputs.at(0));
  return input != nullptr && input->is_contiguous();
}

/// Where a result may be written, instead of being adopted.
std::optional<Placement> placement_for(trace::Role role) {
  switch (role) {
    case trace::Role::kTemporary:
      return Placement::kArena;
    case trace::Role::kResult:
    case trace::Role::kGradient:
      // the user's: a later run must not write it
      return Placement::kMade;
    default:
      return std::nullopt;
  }
}

/// Whether the tensor fills memory of its own from the first byte.
bool fills_its_buffer(const Program& program, std::size_t index, const trace::Tensor& tensor) {
  const trace::Buffer& buffer = program.recording->buffers[tensor.buffer];
  if (program.buffers[tensor.buffer].defined != static_cast<std::int64_t>(index)) return false;
  if (!placement_for(buffer.role) || tensor.offset != 0) return false;
  if (tensor.conj || tensor.neg || tensor.wrapped_number) return false;
  // an op that makes more memory than its result needs (mse_loss: one element for each term of
  // its sum) would have to grow the result, and LibTorch warns
  return buffer.bytes <= tensor.byte_range().second;
}

/// Whether each result is a tensor, or of `lists` a list of them, in memory of its own that can be
/// planned.
enum class Lists { kNo, kYes };
bool can_place_results(const Program& program, std::size_t index, Lists lists) {
  const trace::Recording& recording = *program.recording;
  std::vector<trace::BufferId> seen;
  bool is_good = true;
  for (const trace::Value& value : recording.ops[index].outputs) {
    is_good &= lists == Lists::kYes || std::holds_alternative<trace::TensorRef>(value.data);
    std::size_t count = 0;
    for_each_tensor(value, [&](trace::TensorId id) {
      ++count;
      is_good = is_good && id != trace::kNoTensor &&
                fills_its_buffer(program, index, recording.tensors[id]);
      if (is_good) seen.push_back(recording.tensors[id].buffer);
    });
    is_good &= count > 0;
  }
  std::ranges::sort(seen);
  return is_good && !seen.empty() && std::ranges::adjacent_find(seen) == seen.end();
}

/// Of an op whose results can be placed.
template <typename Visit>
void for_each_result(const Program& program, std::size_t index, Visit&& visit) {
  for_each_tensor(program.recording->ops[index].outputs,
                  [&](trace::TensorId id) { visit(program.recording->tensors[id]); });
}

void place_results(Program& program, std::size_t index) {
  for_each_result(program, index, [&](const trace::Tensor& tensor) {
    program.buffers[tensor.buffer].placement =
        *placement_for(program.recording->buffers[tensor.buffer].role);
  });
}

/// What kernels fill.
bool is_float(const Program& program, std::size_t index) {
  bool is = true;
  for_each_result(program, index, [&](const trace::Tensor& tensor) {
    is = is && tensor.dtype == trace::DType::kFloat32;
  });
  return is;
}

bool is_temporary(const Program& program, std::size_t index) {
  bool is = true;
  for_each_result(program, index, [&](const trace::Tensor& tensor) {
    is = is && program.recording->buffers[tensor.buffer].role == trace::Role::kTemporary;
  });
  return is;
}

}  // namespace

void use_out_variants(Program& program, FillsResults fills_results) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& instruction = program.instructions[i];
    if (instruction.treatment != Treatment::kCall) continue;
    const live::Effects& effects = live::effects_of(instruction.callee);
    if (effects.is_dynamic_shape || effects.is_random) continue;
    const bool is_plain = can_place_results(program, i, Lists::kNo);
    if (is_plain && effects.makes_unwritten) {
      if (!is_temporary(program, i)) continue;
      instruction.treatment = Treatment::kGeometry;
      place_results(program, i);
    } else if (const auto out = is_plain && is_sound(program, i)
                                    ? find_out_variant(instruction.callee)
                                    : std::nullopt) {
      instruction = {Treatment::kOut, *out};
      place_results(program, i);
    } else if (program.uses_kernels && can_place_results(program, i, Lists::kYes) &&
               is_float(program, i) && fills_results(instruction.callee.schema())) {
      instruction.treatment = Treatment::kInto;
      place_results(program, i);
    }
  }
}

}  // namespace steptape::replayer
