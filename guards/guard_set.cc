#include "guards/guard_set.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "guards/entry.h"
#include "guards/mismatch.h"
#include "guards/varying_numbers.h"
#include "live/contents.h"
#include "trace/digest.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::guards {

namespace {

/// The recorded value of a leaf that is an argument or a declared value; null for other leaves.
const trace::Value* given_value(const trace::Recording& recording, const trace::Leaf& leaf) {
  if (leaf.kind == trace::LeafKind::kArgument) {
    const auto input = std::ranges::find(recording.inputs, leaf.path, &trace::Input::path);
    return input == recording.inputs.end() ? nullptr : &input->value;
  }
  if (leaf.kind == trace::LeafKind::kHostValue) {
    const auto value =
        std::ranges::find(recording.host_values, leaf.path, &trace::NamedValue::name);
    return value == recording.host_values.end() ? nullptr : &value->value;
  }
  return nullptr;
}

}  // namespace

GuardSet::GuardSet(const trace::Recording& recording, const std::vector<trace::BufferId>& bound,
                   const std::vector<trace::BufferId>& written, const live::Objects& objects,
                   const live::Snapshot& snapshot, std::vector<OutsideTensor> outside)
    : recording_(recording),
      bound_(bound.size()),
      ambient_(live::Ambient::current()),
      modules_(snapshot),
      optimizers_(recording, objects, snapshot),
      foreign_(recording, objects, snapshot),
      tracked_(recording, positions_of(recording, bound), with_windows(recording, written),
               snapshot),
      inputs_(recording, positions_of(recording, bound)),
      windows_(recording, bound),
      remainders_(recording.inputs.size() + windows_.size()),
      overlap_(recording, bound, with_windows(recording, written)) {
  for (std::string& name : live::groups_of(recording)) groups_.emplace_back(std::move(name));
  for (const trace::NamedValue& value : recording.host_values) {
    host_value_leaves_.push_back(
        trace::find_leaf(recording, trace::LeafKind::kHostValue, value.name));
  }
  for (trace::Index i = 0; i < recording.leaves.size(); ++i) {
    const trace::Leaf& leaf = recording.leaves[i];
    if (const trace::Value* value = given_value(recording, leaf)) {
      given_.add(
          leaf.path, trace::number_of(*value), i, VaryingNumbers::Kind::kFollowed,
          leaf.kind == trace::LeafKind::kArgument ? GuardKind::kArgument : GuardKind::kHostValue);
      given_leaves_.push_back(i);
    }
  }
  given_values_.resize(given_leaves_.size());
  for (OutsideTensor& tensor : outside) {
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const trace::Buffer& buffer = recording.buffers[bound[i]];
      if (buffer.path == tensor.path) outside_.push_back({tensor, &buffer, i});
    }
  }
}

Verdict GuardSet::check(std::span<const live::Argument> arguments, const Declared& declared,
                        Entry& entry) const {
  entry.memory.assign(bound_, nullptr);
  entry.leaves.assign(recording_.leaves.size(), 0);
  entry.has_unseen_number = false;
  // what differs most often comes first, what takes longest last
  if (Verdict verdict = inputs_.check(arguments, entry.leaves); !verdict) return verdict;
  if (Verdict verdict = check_declared(declared, entry); !verdict) return verdict;
  if (Verdict verdict = check_given(entry); !verdict) return verdict;
  if (Verdict verdict = ambient_.check(); !verdict) return verdict;
  if (Verdict verdict = check_groups(); !verdict) return verdict;
  if (Verdict verdict = modules_.check(); !verdict) return verdict;
  if (Verdict verdict = foreign_.check(entry); !verdict) return verdict;
  if (Verdict verdict = optimizers_.check(entry); !verdict) return verdict;
  if (Verdict verdict = tracked_.check(entry.memory); !verdict) return verdict;
  if (Verdict verdict = inputs_.check_tracked(arguments, tracked_); !verdict) return verdict;
  if (Verdict verdict = place_inputs(arguments, entry); !verdict) return verdict;
  if (Verdict verdict = check_predicates(recording_, entry.leaves); !verdict) return verdict;
  if (Verdict verdict = check_outside(entry.memory); !verdict) return verdict;
  const std::uint64_t moves = tracked_.moves() + outside_moves_;
  if (Verdict verdict = overlap_.check_apart(entry.memory, moves); !verdict) return verdict;
  if (Verdict verdict = overlap_.check(entry.memory, moves); !verdict) return verdict;
  entry.moved = tracked_.moved();
  return {};
}

bool GuardSet::fits_program() const {
  const auto is_known = [](const Verdict& verdict) {
    return verdict || verdict.kind == GuardKind::kTraining ||
           verdict.kind == GuardKind::kHyperparameter;
  };
  // as no check counts them: the next one looks again
  constexpr std::uint64_t kNoMoves = std::numeric_limits<std::uint64_t>::max();
  const auto holds = [](const BoundOutside& outside) { return bool{check_unplaced(outside)}; };
  Entry entry;
  entry.memory.assign(bound_, nullptr);
  entry.leaves.assign(recording_.leaves.size(), 0);
  return check_groups() && is_known(modules_.check()) && foreign_.check_unseen() &&
         is_known(optimizers_.check(entry)) && tracked_.check_unplaced(entry.memory) &&
         std::ranges::all_of(outside_, holds) && overlap_.check_apart(entry.memory, kNoMoves);
}

void GuardSet::describe_outside(trace::Recording& recording) const {
  for (const BoundOutside& outside : outside_) {
    if (outside.tensor.storage.use_count() == 0) continue;
    trace::Buffer& buffer =
        recording.buffers[static_cast<std::size_t>(outside.buffer - recording_.buffers.data())];
    if (!buffer.content) continue;
    buffer.content = live::blob_of(*outside.tensor.storage._unsafe_get_target());
    buffer.digest = trace::digest_of(*buffer.content);
  }
}

Verdict GuardSet::check_groups() const {
  const auto gone = std::ranges::find_if_not(groups_, &live::NamedGroup::is_there);
  if (gone == groups_.end()) return {};
  return failed(GuardKind::kProcessGroup, "process group `" + gone->name() + "`",
                "the one that was recorded", "another one, or none");
}

Verdict GuardSet::place_inputs(std::span<const live::Argument> arguments, Entry& entry) const {
  Verdict verdict = inputs_.place(arguments, entry.memory, &remainders_);
  if (!verdict) return verdict;
  verdict = windows_.place(entry.leaves, entry.memory, &remainders_, recording_.inputs.size());
  if (!verdict) return verdict;
  entry.has_new_remainders = !remainders_.are_proved();
  if (!entry.has_new_remainders || remainders_.are_open()) return verdict;
  // in words: the first that is not the recorded one
  Verdict strict = inputs_.place(arguments, entry.memory);
  if (strict) strict = windows_.place(entry.leaves, entry.memory);
  return strict
             ? failed(GuardKind::kAlignment, "inputs (data_ptr modulo 64)", "as compared", "others")
             : strict;
}

template <typename Set, typename Visit>
void GuardSet::for_each_numbers(Set& set, Visit&& visit) {
  OptimizerGuard::for_each_numbers(set.optimizers_, visit);
  ForeignGuard::for_each_numbers(set.foreign_, visit);
  visit(set.given_);
}

void GuardSet::settle() {
  for_each_numbers(*this, [](VaryingNumbers& numbers) { numbers.settle(); });
}

void GuardSet::prove(const NumberAt& number_at) {
  for_each_numbers(*this, [&](VaryingNumbers& numbers) { numbers.prove(number_at); });
}

std::vector<std::int64_t> GuardSet::counters() const {
  std::vector<std::int64_t> counters = optimizers_.counters();
  const std::vector<std::int64_t> foreign = foreign_.counters();
  counters.insert(counters.end(), foreign.begin(), foreign.end());
  return counters;
}

std::vector<trace::Advance> GuardSet::advances() const {
  std::vector<trace::Advance> advances = optimizers_.advances();
  advances.insert(advances.end(), foreign_.advances().begin(), foreign_.advances().end());
  return advances;
}

void GuardSet::advance() const {
  optimizers_.advance();
  foreign_.advance();
}

bool GuardSet::pin() {
  bool any = false;
  for_each_numbers(*this, [&](VaryingNumbers& numbers) { any |= numbers.pin(); });
  return any;
}

bool GuardSet::is_pinned(const std::string& path) const {
  bool any = false;
  for_each_numbers(*this, [&](const VaryingNumbers& numbers) { any |= numbers.is_pinned(path); });
  return any;
}

Verdict GuardSet::check_given(Entry& entry) const {
  for (std::size_t k = 0; k < given_leaves_.size(); ++k) {
    given_values_[k] = entry.leaves[given_leaves_[k]];
  }
  return given_.check(given_values_, entry);
}

Verdict GuardSet::check_declared(const Declared& declared, Entry& entry) const {
  for (std::size_t i = 0; i < recording_.host_values.size(); ++i) {
    const trace::NamedValue& expected = recording_.host_values[i];
    const trace::Value& found = declared.host_values[i];
    if (expected.value == trace::Value()) continue;  // the step does not ask for it
    if (host_value_leaves_[i] != trace::kNone && may_follow(expected.value, found)) {
      entry.leaves[host_value_leaves_[i]] = trace::number_of(found);
    } else if (found != expected.value) {
      return failed(GuardKind::kHostValue, expected.name, trace::words_of(expected.value),
                    trace::words_of(found));
    }
  }
  for (std::size_t i = 0; i < recording_.facts.size(); ++i) {
    const trace::NamedValue& expected = recording_.facts[i];
    if (declared.facts[i] == expected.value) continue;
    return failed(GuardKind::kFact, expected.name, trace::words_of(expected.value),
                  trace::words_of(declared.facts[i]));
  }
  return {};
}

/// As an op would find them: `mask.t_()` changes one.
Verdict GuardSet::check_objects(const OutsideTensor& outside, const trace::Buffer& buffer) {
  for (const OutsideTensor::Object& known : outside.objects) {
    const at::Tensor tensor(known.object.lock());
    if (!tensor.defined()) continue;
    if (tensor.storage().unsafeGetStorageImpl() != outside.storage._unsafe_get_target()) {
      return failed(GuardKind::kMemory, outside.path, "the memory that it had", "another");
    }
    if (Verdict verdict = geometry_mismatch(outside.path, *known.geometry, buffer.device, tensor);
        !verdict) {
      return verdict;
    }
    if (Verdict verdict = offset_mismatch(outside.path, *known.geometry, tensor); !verdict) {
      return verdict;
    }
    if (Verdict verdict = hooks_mismatch(outside.path, known.hooks, tensor); !verdict) {
      return verdict;
    }
    if (tensor.requires_grad() != known.requires_grad) {
      return failed_flag(GuardKind::kRequiresGrad, outside.path + ".requires_grad",
                         known.requires_grad);
    }
  }
  return {};
}

Verdict GuardSet::check_unplaced(const BoundOutside& outside) {
  const std::string& path = outside.tensor.path;
  if (outside.tensor.storage.use_count() == 0) {
    return failed(GuardKind::kAlive, path, "alive", "freed by the program");
  }
  const c10::StorageImpl& storage = *outside.tensor.storage._unsafe_get_target();
  if (Verdict verdict = bytes_mismatch(path, *outside.buffer, storage); !verdict) return verdict;
  return check_objects(outside.tensor, *outside.buffer);
}

Verdict GuardSet::check_outside(std::span<void*> memory) const {
  for (const BoundOutside& outside : outside_) {
    if (Verdict verdict = check_unplaced(outside); !verdict) return verdict;
    // alive at this moment, on a thread that runs no one else's code until the replay is over
    const c10::StorageImpl* storage = outside.tensor.storage._unsafe_get_target();
    const std::string& path = outside.tensor.path;
    auto* address = const_cast<void*>(storage->data());
    if (Verdict verdict = alignment_mismatch(path, *outside.buffer, address); !verdict) {
      return verdict;
    }
    memory[outside.position] = address;
    if (std::exchange(outside.address, address) != address) ++outside_moves_;
  }
  return {};
}

}  // namespace steptape::guards
