#include "guards/foreign_guard.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "guards/mismatch.h"
#include "trace/numbers.h"

namespace steptape::guards {
namespace {

/// Numbers of optimizers and their state have leaves of these kinds.
trace::Index leaf_of(const trace::Recording& recording, const std::string& path) {
  const trace::Index leaf = trace::find_leaf(recording, trace::LeafKind::kHyperparameter, path);
  return leaf != trace::kNone ? leaf
                              : trace::find_leaf(recording, trace::LeafKind::kStateNumber, path);
}

/// Numbers of optimizers as the recorded step found them: it may have moved some.
std::unordered_map<std::string, double> numbers_at_entry(const trace::Recording& recording) {
  std::unordered_map<std::string, double> numbers;
  for (const trace::OptimizerLayout& layout : recording.optimizers) {
    trace::for_each_number(layout, [&](const std::string& path, const trace::Value& value) {
      numbers.emplace(path, trace::number_of(value));
    });
  }
  return numbers;
}

}  // namespace

ForeignGuard::ForeignGuard(const trace::Recording& recording, const live::Objects& objects,
                           const live::Snapshot& snapshot) {
  const live::PathOf path_of = [&snapshot](const at::Tensor& tensor) {
    return snapshot.path_of(tensor);
  };
  const std::unordered_map<std::string, double> at_entry = numbers_at_entry(recording);
  for (const auto& [name, object] : objects.foreign()) {
    Watched watched{name, object->watch(path_of), {}, {}};
    const std::vector<std::string> names = watched.watch->names();
    watched.values.resize(names.size());
    watched.watch->read(watched.values);
    for (std::size_t k = 0; k < names.size(); ++k) {
      const std::string path = name + names[k];
      const trace::Index leaf = leaf_of(recording, path);
      const auto found = at_entry.find(path);
      watched.numbers.add(path, found != at_entry.end() ? found->second : watched.values[k], leaf,
                          VaryingNumbers::Kind::kFollowed);
      const auto advance = std::ranges::find(recording.advances, path, &trace::Advance::path);
      if (advance == recording.advances.end()) continue;
      counters_.push_back({watched_.size(), k});
      advances_.push_back(*advance);
    }
    watched_.push_back(std::move(watched));
  }
}

Verdict ForeignGuard::check_unseen() const {
  for (const Watched& watched : watched_) {
    Verdict verdict = watched.watch->check();
    if (!verdict && verdict.kind != GuardKind::kTraining) return verdict;
    if (verdict = read(watched); !verdict) return verdict;
  }
  return {};
}

Verdict ForeignGuard::read(const Watched& watched) {
  if (watched.values.empty()) return {};
  const std::size_t other = watched.watch->read(watched.values);
  if (other == live::ForeignWatch::kAllRead) return {};
  return failed(GuardKind::kHyperparameter, watched.name + watched.watch->names()[other],
                "a number of the type it had when it was recorded", "another type, or gone");
}

Verdict ForeignGuard::check(Entry& entry) const {
  for (const Watched& watched : watched_) {
    if (Verdict verdict = watched.watch->check(); !verdict) {
      verdict.path = watched.name + verdict.path;
      if (verdict.kind == GuardKind::kNone) verdict.kind = GuardKind::kHostState;
      return verdict;
    }
    if (Verdict verdict = read(watched); !verdict) return verdict;
    if (watched.values.empty()) continue;
    if (Verdict verdict = watched.numbers.check(watched.values, entry); !verdict) return verdict;
  }
  return {};
}

std::vector<std::int64_t> ForeignGuard::counters() const {
  std::vector<std::int64_t> counters;
  for (const Counter& counter : counters_) {
    const Watched& watched = watched_[counter.watched];
    watched.watch->read(watched.values);
    counters.push_back(static_cast<std::int64_t>(watched.values[counter.number]));
  }
  return counters;
}

void ForeignGuard::advance() const {
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    watched_[counters_[i].watched].watch->advance(counters_[i].number, advances_[i].by);
  }
}

}  // namespace steptape::guards
