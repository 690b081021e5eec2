#include <algorithm>
#include <chrono>
#include <set>

#include "live/ambient.h"
#include "live/contents.h"
#include "live/generator_state.h"
#include "live/tensors.h"
#include "session/arguments.h"
#include "session/session_state.h"
#include "session/step_life.h"
#include "storage/files/replace.h"
#include "storage/trace/writer.h"
#include "trace/numbers.h"

namespace steptape::session {
namespace {

std::vector<trace::Fact> facts_of(const RunIdentity& run) {
  std::vector<trace::Fact> facts = run.facts();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  facts.push_back({"saved_unix_s", std::to_string(seconds)});
  return facts;
}

/// A trace that says who makes it, and nothing else.
trace::Trace head_of(const RunIdentity& run) {
  trace::Trace trace;
  trace.producer = live::producer();
  trace.run = facts_of(run);
  trace.environment = live::environment();
  return trace;
}

/// Keeps each number under its path.
auto adding_to(std::vector<trace::Saved>& saved) {
  return [&saved](const std::string& path, const trace::Value& value) {
    saved.push_back({path, 0, nullptr, value});
  };
}

/// Hyperparameters and step counters, by the paths that leaves have, and training flags.
void add_numbers(const live::Objects& objects, std::vector<trace::Saved>& saved) {
  const live::Snapshot snapshot = objects.snapshot();
  const auto add = adding_to(saved);
  for (const live::ModuleAt& module : snapshot.modules) {
    add(module.path + ".training", {module.training});
  }
  for (const trace::OptimizerLayout& layout : snapshot.optimizers) {
    trace::for_each_number(layout, add);
  }
}

/// Paths of the buffers that recorded ops use.
std::set<std::string> used_paths(const std::vector<trace::Step>& steps) {
  std::set<std::string> paths;
  for (const trace::Step& step : steps) {
    for (const trace::Recording& recording : step.recordings) {
      const auto use = [&](trace::TensorId id) {
        if (id != trace::kNoTensor)
          paths.insert(recording.buffers[recording.tensors[id].buffer].path);
      };
      for (const trace::Op& op : recording.ops) {
        for (const trace::Value& value : op.inputs) for_each_tensor(value, use);
      }
    }
  }
  return paths;
}

/// Whether the tensor was only found in reach of the step, and no op uses it: a data set, another
/// model.
bool is_bystander(const std::string& path, const std::set<std::string>& used) {
  return path.starts_with("host.") && !used.contains(path);
}

/// Whole storages, each once, under the path of the first tensor on it: as recordings name buffers.
std::vector<trace::Saved> state_of(const live::Objects& objects,
                                   const std::set<std::string>& used) {
  std::vector<trace::Saved> saved;
  std::set<const c10::StorageImpl*> seen;
  for (const live::TensorAt& at : objects.snapshot().tensors) {
    if (!at.tensor.defined() || live::unplannable_kind(at.tensor) ||
        live::foreign_device(at.tensor))
      continue;
    if (is_bystander(at.path, used)) continue;
    const c10::StorageImpl* storage = at.tensor.storage().unsafeGetStorageImpl();
    if (!seen.insert(storage).second) continue;
    saved.push_back({at.path, live::address_mod_64(*storage), live::blob_of(*storage)});
  }
  add_numbers(objects, saved);
  for (const auto& [path, generator] : objects.generators()) {
    const at::Tensor state = live::state_of(generator);
    saved.push_back(
        {"generator." + path, 0, trace::make_blob(state.const_data_ptr(), state.nbytes())});
  }
  return saved;
}

}  // namespace

trace::Trace SessionState::to_trace(bool with_state) const {
  if (with_state) objects.check_alive();
  trace::Trace trace = head_of(started ? run : RunIdentity::now());
  for (const auto& step : steps) trace.steps.push_back(step->to_trace(with_state));
  if (!with_state) return trace;
  trace.state = state_of(objects, used_paths(trace.steps));
  const auto add = adding_to(trace.state);
  for (std::size_t i = 0; i < declared_last.host_values.size(); ++i) {
    const bool is_place = host_values[i].is_place;
    const trace::Value value =
        is_place ? argument_of(host_values[i].function()).fact : declared_last.host_values[i];
    trace::for_each_number(host_values[i].name, value, add);
  }
  for (std::size_t i = 0; i < declared_last.facts.size(); ++i) {
    trace::for_each_number(facts[i].name, declared_last.facts[i], add);
  }
  return trace;
}

bool SessionState::fits_places(const trace::Recording& recording) const {
  return std::ranges::all_of(recording.host_values, [this](const trace::NamedValue& was) {
    const auto place = std::ranges::find(host_values, was.name, &Declaration::name);
    if (place == host_values.end() || !place->is_place) return true;
    const trace::Value now = argument_of(place->function()).fact;
    const bool is_of_its_kind = was.value.data.index() == now.data.index();
    return (trace::is_number(was.value) && is_of_its_kind) || was.value == now;
  });
}

void SessionState::make_room() {
  if (!has_room && !options.resume && !earlier->may_be_replaced()) {
    const auto first = ledger != nullptr ? ledger->earlier() : std::nullopt;
    earlier_number = storage::set_trace_aside(trace_path, first.value_or(1));
  }
  has_room = true;
}

void SessionState::write_trace() {
  if (!keeps_recordings()) return;
  try {
    make_room();
    storage::write(to_trace(/*with_state=*/false), trace_path);
    trace_problem.clear();
  } catch (const std::exception& error) {
    lose_trace(error.what());
  }
}

void SessionState::keep(const trace::Step& step, const trace::Recording& recording) {
  if (!keeps_recordings()) return;
  if (!kept->is_begun()) kept->begin(head_of(run));
  kept->add(step, recording);
  if (std::string problem = kept->problem(); !problem.empty()) lose_trace(std::move(problem));
}

void SessionState::finish_trace() {
  if (kept == nullptr || !kept->is_begun()) return;
  try {
    make_room();
    kept->finish(to_trace(/*with_state=*/false));
  } catch (const std::exception& error) {
    trace_problem = error.what();
  }
}

}  // namespace steptape::session
