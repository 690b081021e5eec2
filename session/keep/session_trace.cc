#include "session/keep/session_trace.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "live/ambient.h"
#include "live/contents.h"
#include "live/generator_state.h"
#include "live/tensors.h"
#include "session/observe/log.h"
#include "session/session_state.h"
#include "session/step_life.h"
#include "storage/files/replace.h"
#include "storage/ledger/ledger_reader.h"
#include "storage/trace/writer.h"
#include "trace/numbers.h"
#include "trace/record_request.h"

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

/// Hyperparameters and step counters, by the paths that leaves have, and training flags.
void add_numbers(const live::Objects& objects, std::vector<trace::Saved>& saved) {
  const live::Snapshot snapshot = objects.snapshot();
  const auto add = [&saved](const std::string& path, const trace::Value& value) {
    saved.push_back({path, 0, nullptr, value});
  };
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
      for (const trace::Op& op : recording.ops) for_each_tensor(op.inputs, use);
      std::ranges::for_each(recording.results, use);
    }
  }
  return paths;
}

/// Whether the tensor was only found in reach of the step, which neither uses nor returns it: a
/// data set, another model.
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

trace::Trace SessionTrace::contents(bool with_state) const {
  if (with_state) session_.objects.check_alive();
  trace::Trace trace = head_of(run_ ? *run_ : RunIdentity::now());
  for (const auto& step : session_.steps) trace.steps.push_back(step->to_trace(with_state));
  if (!with_state) return trace;
  trace.state = state_of(session_.objects, used_paths(trace.steps));
  std::ranges::move(session_.declarations.numbers(), std::back_inserter(trace.state));
  std::ranges::move(session_.declarations.kinds(), std::back_inserter(trace.state));
  std::set<std::string> places;
  for (const trace::Step& step : trace.steps) {
    for (const trace::Recording& recording : step.recordings) {
      if (recording.status != trace::Status::kTrusted) continue;
      auto carried = session_.declarations.carried(recording);
      for (trace::Saved& held : *carried) {
        if (places.insert(held.path).second) trace.state.push_back(std::move(held));
      }
    }
  }
  return trace;
}

void SessionTrace::save(const std::string& path, bool with_state) {
  storage::write(contents(with_state), path);
  std::error_code error;
  is_saved_ = is_saved_ || std::filesystem::equivalent(path, path_, error);
}

void SessionTrace::start() {
  run_ = RunIdentity::now();
  if (session_.options.trace.empty()) return;
  path_ = run_->own(session_.options.trace);
  kept_ = std::make_unique<KeptRecordings>(path_);
  earlier_ = std::make_unique<EarlierTrace>(path_);
  if (!session_.options.ledger) return;
  ledger_ = std::make_unique<CallLedger>(storage::ledger_beside(path_), run_->digest(),
                                         session_.options.resume);
  if (ledger_->is_taken()) lose(ledger_->problem());
}

void SessionTrace::lose(std::string why) {
  problem_ = std::move(why);
  if (!session_.is_asked_by_environment) return;
  say_once(std::string(trace::RecordRequest::kVariable) + ": " + path_ +
           " is not kept: " + problem_);
}

bool SessionTrace::keeps_recordings() const {
  return kept_ != nullptr && (ledger_ == nullptr || !ledger_->is_taken());
}

void SessionTrace::make_room() {
  if (!has_room_ && !session_.options.resume && !earlier_->may_be_replaced()) {
    const auto first = ledger_ != nullptr ? ledger_->earlier() : std::nullopt;
    earlier_number_ = storage::set_trace_aside(path_, first.value_or(1));
  }
  has_room_ = true;
}

void SessionTrace::write() {
  if (!keeps_recordings()) return;
  try {
    make_room();
    storage::write(contents(/*with_state=*/false), path_);
    is_saved_ = false;
    problem_.clear();
  } catch (const std::exception& error) {
    lose(error.what());
  }
}

void SessionTrace::keep(const trace::Step& step, const trace::Recording& recording) {
  if (!keeps_recordings()) return;
  if (!kept_->is_begun()) kept_->begin(head_of(*run_));
  kept_->add(step, recording);
  if (std::string problem = kept_->problem(); !problem.empty()) lose(std::move(problem));
}

void SessionTrace::finish() {
  if (kept_ == nullptr || run_->pid != ::getpid()) return;  // a forked child's is its parent's
  if (!kept_->is_begun()) {
    if (!is_saved_) write();
    return;
  }
  try {
    make_room();
    kept_->finish(contents(/*with_state=*/false));
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

}  // namespace steptape::session
