#include "replayer/player/repetition.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "live/generator_state.h"
#include "live/operators.h"
#include "replayer/planner/analysis/refusals.h"
#include "replayer/runtime/backends.h"
#include "replayer/runtime/cpu/executor.h"
#include "replayer/runtime/tensor_on.h"
#include "steptape/error.h"

namespace steptape::replayer {
namespace {

/// Without what tells how numbers change from call to call: this call is done with its own.
std::shared_ptr<const trace::Recording> as_recorded(const trace::Recording& recording) {
  auto literal = std::make_shared<trace::Recording>(recording);
  literal->scalars.clear();
  literal->predicates.clear();
  literal->advances.clear();
  literal->formulas.clear();
  literal->leaves.clear();
  literal->optimizers.clear();  // which say what numbers follow from
  for (trace::Number& number : literal->numbers) number.formula = trace::kNone;
  return literal;
}

/// Generators in the states that the call found.
class Generators {
 public:
  explicit Generators(const std::vector<trace::GeneratorState>& found) {
    for (const trace::GeneratorState& state : found) {
      at::Generator generator = state.path == "default" ? at::detail::getDefaultCPUGenerator()
                                                        : at::detail::createCPUGenerator();
      if (state.content) set(generator, *state.content);
      generators_.emplace(state.path, std::move(generator));
    }
  }

  at::Generator operator()(const std::string& path) const {
    const auto found = generators_.find(path);
    if (found != generators_.end()) return found->second;
    if (path == "default") return at::detail::getDefaultCPUGenerator();
    throw Error(ErrorCode::kUnsupported, "the recording does not know generator `" + path + "`");
  }

 private:
  static void set(const at::Generator& generator, const std::vector<std::byte>& content) {
    at::Tensor state = live::state_of(generator);
    if (state.nbytes() != content.size()) {
      throw Error(ErrorCode::kUnsupported, "a generator's state had " +
                                               std::to_string(content.size()) + " bytes, and has " +
                                               std::to_string(state.nbytes()) + " in this torch");
    }
    std::memcpy(state.mutable_data_ptr(), content.data(), content.size());
    live::set_state(generator, state);
  }

  std::map<std::string, at::Generator> generators_;
};

/// The generator whose state at entry it would take and that nobody kept; none where it draws no
/// number.
std::optional<std::string> generator_missing(const trace::Recording& recording) {
  const auto is_random = [](const trace::Operator& op) {
    const auto handle = live::find_operator(op);
    return handle && live::effects_of(*handle).is_random;
  };
  if (std::ranges::none_of(recording.operators, is_random)) return std::nullopt;
  for (const trace::GeneratorState& state : recording.generators) {
    if (!state.content) return state.path;
  }
  return recording.generators.empty() ? std::optional<std::string>("default") : std::nullopt;
}

}  // namespace

std::size_t Repetition::compared(const trace::Recording& recording) const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    if (digests[i] && recording.op_digests[i] != trace::Digest{}) ++count;
  }
  return count;
}

trace::Index Repetition::first_difference(const trace::Recording& recording) const {
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const trace::Digest& recorded = recording.op_digests[i];
    if (!digests[i] || recorded == trace::Digest{} || *digests[i] == recorded) continue;
    return static_cast<trace::Index>(i);
  }
  return trace::kNone;
}

std::vector<std::string> lacks_of(const trace::Recording& recording) {
  if (recording.status == trace::Status::kWarmUp) {
    return {"it created optimizer state, and no plan is made of such a call"};
  }
  std::vector<std::string> lacks;
  if (recording.op_digests.empty()) lacks.emplace_back("it has no digests of its ops");
  const auto literal = as_recorded(recording);
  for (const Refusal& refusal : refusals_of(*literal, why_no_backend))
    lacks.push_back(refusal.text());
  if (!lacks.empty()) return lacks;
  if (const trace::Device device = device_of(recording); device.kind != trace::DeviceKind::kCpu) {
    return {"it was recorded on " + text_of(device) + ", and calls are done again on the CPU"};
  }
  const Program program = cpu::plan(literal);
  std::vector<std::string> missing;
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    const trace::Buffer& buffer = recording.buffers[id];
    const bool is_found = program.buffers[id].placement == Placement::kBound;
    if (is_found && !buffer.content && buffer.bytes != 0) missing.push_back(buffer.path);
  }
  if (const auto generator = generator_missing(recording)) {
    lacks.push_back("it has no state of generator `" + *generator + "` as the call found it");
  }
  if (missing.empty()) return lacks;
  const std::string others =
      missing.size() > 1 ? " and " + std::to_string(missing.size() - 1) + " more" : "";
  lacks.push_back("it has no bytes of " + missing.front() + others + " as the call found them");
  return lacks;
}

Repetition repeat(const trace::Recording& recording) {
  Repetition repetition;
  const Generators generators(recording.generators);
  const auto executor = make_executor(as_recorded(recording), generators);
  std::vector<c10::Storage> storages;
  std::vector<void*> memory;
  for (const trace::BufferId id : executor->bound()) {
    const trace::Buffer& buffer = recording.buffers[id];
    storages.push_back(allocate(buffer.bytes, buffer.address_mod_64));
    memory.push_back(storages.back().mutable_data());
    if (buffer.content && buffer.bytes != 0) {
      std::memcpy(memory.back(), buffer.content->data(), buffer.bytes);
    }
  }
  try {
    executor->run({.memory = memory, .inspection = {.digests = &repetition.digests}});
  } catch (const std::exception& error) {
    repetition.failure = error.what();
  }
  return repetition;
}

}  // namespace steptape::replayer
