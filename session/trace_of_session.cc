#include <unistd.h>

#include <chrono>
#include <set>

#include "live/ambient.h"
#include "live/tensors.h"
#include "replayer/cpu/undo.h"
#include "session/arguments.h"
#include "session/session_state.h"
#include "session/step_life.h"
#include "storage/writer.h"

namespace steptape::session {
namespace {

std::vector<trace::Fact> run_facts() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return {
      {"host", host}, {"pid", std::to_string(getpid())}, {"saved_unix_s", std::to_string(seconds)}};
}

void add_number(std::vector<trace::Saved>& saved, const std::string& path,
                const trace::Value& value) {
  if (const auto* list = std::get_if<trace::List>(&value.data)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      add_number(saved, path + "[" + std::to_string(i) + "]", (*list)[i]);
    }
  } else if (trace::is_number(value)) {
    saved.push_back({path, 0, nullptr, value});
  }
}

/// Hyperparameters and step counters, by the paths that leaves have, and training flags.
void add_numbers(const live::Objects& objects, std::vector<trace::Saved>& saved) {
  const live::Snapshot snapshot = objects.snapshot();
  for (const live::ModuleAt& module : snapshot.modules) {
    add_number(saved, module.path + ".training", {module.module->is_training()});
  }
  for (const trace::OptimizerLayout& layout : snapshot.optimizers) {
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const std::string group = layout.path + ".param_groups[" + std::to_string(g) + "].";
      for (const trace::NamedValue& named : layout.groups[g].hyperparameters) {
        add_number(saved, group + named.name, named.value);
      }
    }
    for (const trace::OptimizerStateEntry& entry : layout.state) {
      add_number(saved, layout.path + ".state[" + entry.parameter + "]." + entry.key, entry.value);
    }
  }
}

/// Whole storages, each once, under the path of the first tensor on it: as recordings name buffers.
std::vector<trace::Saved> state_of(const live::Objects& objects) {
  std::vector<trace::Saved> saved;
  std::set<const c10::StorageImpl*> seen;
  for (const live::TensorAt& at : objects.snapshot().tensors) {
    if (!at.tensor.defined() || live::unplannable_kind(at.tensor) || !at.tensor.device().is_cpu())
      continue;
    const c10::StorageImpl* storage = at.tensor.storage().unsafeGetStorageImpl();
    if (!seen.insert(storage).second) continue;
    saved.push_back({at.path, live::address_mod_64(*storage),
                     trace::make_blob(storage->data(), storage->nbytes())});
  }
  add_numbers(objects, saved);
  for (const auto& [path, generator] : objects.generators()) {
    const at::Tensor state = replayer::cpu::state_of(generator);
    saved.push_back(
        {"generator." + path, 0, trace::make_blob(state.const_data_ptr(), state.nbytes())});
  }
  return saved;
}

}  // namespace

guards::Declared SessionState::declared() const {
  guards::Declared declared;
  for (const Declaration& value : host_values) {
    declared.host_values.push_back(argument_of(value.function()).fact);
  }
  for (const Declaration& fact : facts) declared.facts.push_back(argument_of(fact.function()).fact);
  return declared;
}

void SessionState::describe(const guards::Declared& declared, trace::Recording& recording) const {
  for (std::size_t i = 0; i < host_values.size(); ++i) {
    recording.host_values.push_back({host_values[i].name, declared.host_values[i]});
  }
  for (std::size_t i = 0; i < facts.size(); ++i) {
    recording.facts.push_back({facts[i].name, declared.facts[i]});
  }
}

trace::Trace SessionState::to_trace(bool with_state) const {
  trace::Trace trace;
  trace.producer = live::producer();
  trace.run = run_facts();
  trace.environment = live::environment();
  for (const auto& step : steps) trace.steps.push_back(step->to_trace());
  if (!with_state) return trace;
  trace.state = state_of(objects);
  for (std::size_t i = 0; i < declared_last.host_values.size(); ++i) {
    add_number(trace.state, host_values[i].name, declared_last.host_values[i]);
  }
  for (std::size_t i = 0; i < declared_last.facts.size(); ++i) {
    add_number(trace.state, facts[i].name, declared_last.facts[i]);
  }
  return trace;
}

void SessionState::write_trace() {
  if (options.trace.empty()) return;
  try {
    storage::write(to_trace(/*with_state=*/false), options.trace);
    trace_problem.clear();
  } catch (const std::exception& error) {
    trace_problem = error.what();
  }
}

}  // namespace steptape::session
