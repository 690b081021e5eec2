#include "replayer/runtime/calls.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "guards/mismatch.h"
#include "live/collectives.h"
#include "live/contents.h"
#include "live/operators.h"
#include "live/tensors.h"
#include "live/values.h"

namespace steptape::replayer {
namespace {

class Preparation {
 public:
  Preparation(const Program& program, const Memory& memory, const GeneratorOf& generator)
      : program_(program), memory_(memory), generator_(generator) {
    made_.generators.push_back(generator("default"));
  }

  Calls run(const std::vector<std::int64_t>& places) {
    for (const Place& place : order_of(program_, places)) {
      made_.calls.push_back(call_of(place));
    }
    plan_releases();
    return std::move(made_);
  }

 private:
  const trace::Recording& recording() const { return *program_.recording; }

  Call call_of(const Place& place) {
    const Instruction& instruction = program_.instructions[place.op];
    const trace::Op& op = recording().ops[place.op];
    const auto recorded = live::find_operator(recording().operator_of(op));
    Call call{.callee = instruction.callee,
              .op = place.op,
              .may_throw = live::effects_of(*recorded).may_throw_on_data,
              .is_once = place.is_once,
              .at = place.at};
    const auto tensor = [this](trace::TensorId id) { return memory_.tensor(id); };
    const auto tracked_generator = [this](const std::string& path) {
      at::Generator found = generator_(path);
      if (std::ranges::find(made_.generators, found) == made_.generators.end()) {
        made_.generators.push_back(found);
      }
      return found;
    };
    const auto& arguments = instruction.callee.schema().arguments();
    for (std::size_t a = 0; a < op.inputs.size(); ++a) {
      if (live::is_group_type(*arguments[a].type())) {
        call.group = {a, std::get<std::string>(op.inputs[a].data)};
        call.arguments.emplace_back();
        continue;
      }
      call.arguments.push_back(
          live::ivalue_of(op.inputs[a], *arguments[a].type(), tensor, tracked_generator));
    }
    if (instruction.treatment != Treatment::kCall) {
      place_results(call, op, instruction.treatment);
    } else {
      adopt_results(call, op);
    }
    return call;
  }

  void place_results(Call& call, const trace::Op& op, Treatment treatment) const {
    for_each_tensor(op.outputs, [&](trace::TensorId id) {
      call.placed.push_back(id);
      if (treatment == Treatment::kOut) call.arguments.emplace_back(memory_.tensor(id));
      const trace::BufferId buffer = recording().tensors[id].buffer;
      if (program_.buffers[buffer].placement == Placement::kMade) call.makes.push_back(buffer);
    });
    call.copies = treatment == Treatment::kInto;
  }

  void adopt_results(Call& call, const trace::Op& op) const {
    for_each_tensor(op.outputs, [&](trace::TensorId id) {
      call.outputs.push_back(id);
      if (id == trace::kNoTensor) return;
      call.adopts |= program_.buffers[recording().tensors[id].buffer].defined ==
                     static_cast<std::int64_t>(call.op);
    });
  }

  void plan_releases() {
    std::vector<Call*> last_call(program_.buffers.size(), nullptr);
    for (Call& call : made_.calls) {
      for_each_tensor_of(recording().ops[call.op], [&](trace::TensorId id) {
        last_call[recording().tensors[id].buffer] = &call;
      });
    }
    const auto end = static_cast<std::int64_t>(recording().ops.size());
    for (trace::BufferId id = 0; id < program_.buffers.size(); ++id) {
      const BufferPlan& plan = program_.buffers[id];
      if (!is_new_each_time(plan.placement) || plan.defined < 0 || plan.stays) continue;
      if (plan.last_use == end || last_call[id] == nullptr) {
        made_.trailing_releases.push_back(id);
      } else {
        last_call[id]->release.push_back(id);
      }
    }
  }

  const Program& program_;
  const Memory& memory_;
  const GeneratorOf& generator_;
  Calls made_;
};

}  // namespace

std::vector<Place> order_of(const Program& program, const std::vector<std::int64_t>& places) {
  std::vector<Place> order;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.treatment == Treatment::kGeometry ||
        instruction.treatment == Treatment::kDropped)
      continue;
    const std::int64_t at = instruction.is_once ? -1 : places[i];
    order.push_back({static_cast<trace::Index>(i), instruction.is_once, at});
  }
  std::ranges::stable_sort(order, {}, [](const Place& place) {
    return std::tuple(!place.is_once, place.at, place.at != static_cast<std::int64_t>(place.op));
  });
  return order;
}

Calls calls_of(const Program& program, const Memory& memory, const GeneratorOf& generator,
               const std::vector<std::int64_t>& places) {
  return Preparation(program, memory, generator).run(places);
}

namespace {

std::string result_path(const Call& call, std::size_t position) {
  return name_of(call) + " results[" + std::to_string(position) + "]";
}

AssumptionViolated other_result(Verdict verdict) {
  verdict.kind = GuardKind::kRunShape;
  return {RefusalCode::kDataDependentShape, std::move(verdict)};
}

bool lies_as(const at::Tensor& result, const trace::Tensor& expected) {
  return guards::has_geometry(result, expected, live::scalar_type_of(expected.dtype)) &&
         result.storage_offset() == expected.offset;
}

/// Under capture small results that lie on the host otherwise lie on the device: seeds of
/// attention.
bool lies_where(const at::Tensor& result, const trace::Buffer& buffer, Placement placement) {
  return guards::is_on(result, buffer.device) || placement == Placement::kCaptured;
}

bool fits(const at::Tensor& result, const trace::Tensor& expected, const trace::Buffer& buffer) {
  // the plan's own storages cannot be resized: one of them must not reach the user as new memory
  return result.defined() && result.has_storage() && result.storage().resizable() &&
         lies_as(result, expected) && result.storage().nbytes() >= buffer.bytes;
}

}  // namespace

void CallResults::adopt(const Call& call, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    live::for_each_tensor(value, [&](const at::Tensor& tensor) { results.push_back(tensor); });
  }
  if (results.size() != call.outputs.size()) {
    throw other_result(guards::failed(GuardKind::kRunShape, name_of(call) + " results.size",
                                      static_cast<std::int64_t>(call.outputs.size()),
                                      static_cast<std::int64_t>(results.size())));
  }
  for (std::size_t i = 0; i < results.size(); ++i) adopt(call, i, results[i]);
}

void CallResults::adopt(const Call& call, std::size_t position, const at::Tensor& result) {
  const trace::TensorId id = call.outputs[position];
  if (id == trace::kNoTensor) {
    if (!result.defined()) return;
    throw other_result(
        guards::failed(GuardKind::kRunShape, result_path(call, position), "undefined", "a tensor"));
  }
  const trace::Tensor& expected = recording().tensors[id];
  const trace::Buffer& buffer = recording().buffers[expected.buffer];
  const bool is_new =
      program_.buffers[expected.buffer].defined == static_cast<std::int64_t>(call.op);
  if (result.defined() && !is_new) return;
  const Placement placement = program_.buffers[expected.buffer].placement;
  if (!fits(result, expected, buffer) || !lies_where(result, buffer, placement)) {
    throw other_result(
        guards::result_mismatch(result_path(call, position), expected, buffer, result));
  }
  if (placement == Placement::kStaging) {
    live::copy_bytes(memory_.address(expected.buffer), result.device(), result.storage().data(),
                     result.device(), buffer.bytes);
    return;
  }
  memory_.adopt(expected.buffer, result.storage());
}

void CallResults::check_placed(const Call& call) const {
  for (std::size_t i = 0; i < call.placed.size(); ++i) {
    const trace::Tensor& expected = recording().tensors[call.placed[i]];
    const at::Tensor& result = memory_.tensor(call.placed[i]);
    if (lies_as(result, expected)) continue;
    throw other_result(guards::result_mismatch(result_path(call, i), expected,
                                               recording().buffers[expected.buffer], result));
  }
}

}  // namespace steptape::replayer
