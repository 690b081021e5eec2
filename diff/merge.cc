#include "diff/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "diff/diff.h"
#include "diff/layout.h"
#include "steptape/error.h"
#include "trace/compare/compare.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

/// Gives equal contents of several files one blob, which is written once.
class Contents {
 public:
  void share(trace::Recording& recording) {
    for (trace::Buffer& buffer : recording.buffers) {
      if (buffer.content) buffer.content = known(buffer.content);
    }
    for (trace::GeneratorState& generator : recording.generators) {
      if (generator.content) generator.content = known(generator.content);
    }
  }

 private:
  trace::Blob known(const trace::Blob& content) {
    const trace::Blob& first =
        known_.try_emplace(trace::text_of(trace::digest_of(*content)), content).first->second;
    return *first == *content ? first : content;
  }

  std::map<std::string, trace::Blob> known_;  ///< by digest
};

class Merger {
 public:
  Merger(std::span<const trace::Trace> traces, std::span<const std::string> names)
      : traces_(traces), names_(names) {}

  Merged merge() {
    out_.trace.producer = traces_.front().producer;
    out_.trace.run = traces_.front().run;
    out_.trace.environment = traces_.front().environment;
    for (std::size_t i = 0; i < traces_.size(); ++i) add(i);
    take_state();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::size_t trace, std::size_t other, const std::string& why) const {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be joined with {}: {}", names_[trace], names_[other], why));
  }

  void add(std::size_t number) {
    const trace::Trace& trace = traces_[number];
    for (std::size_t before = 0; before < number; ++before) {
      if (const auto why = conflict_of(traces_[before], trace)) fail(number, before, *why);
    }
    std::erase_if(out_.trace.run, [&trace](const trace::Fact& fact) {
      return std::ranges::find(trace.run, fact) == trace.run.end();
    });
    for (const trace::Step& step : trace.steps) {
      const std::size_t at = step_at(step);
      for (std::size_t i = 0; i < step.recordings.size(); ++i) {
        add(at, step.recordings[i], {number, i});
      }
    }
  }

  /// The joined step of this name, which is made where there is none.
  std::size_t step_at(const trace::Step& step) {
    std::vector<trace::Step>& steps = out_.trace.steps;
    const auto known = std::ranges::find(steps, step.name, &trace::Step::name);
    if (known != steps.end()) return static_cast<std::size_t>(known - steps.begin());
    steps.push_back({step.name, step.place, {}});
    out_.steps.push_back({step.name, {}, {}});
    return steps.size() - 1;
  }

  void add(std::size_t at, const trace::Recording& recording, Origin origin) {
    trace::Step& step = out_.trace.steps[at];
    MergedStep& merged = out_.steps[at];
    for (std::size_t i = 0; i < step.recordings.size(); ++i) {
      trace::Recording& known = step.recordings[i];
      if (merged.kept[i].trace == origin.trace) continue;
      if (!is_same(merged, i, recording, origin)) continue;
      merged.left_out.push_back(origin);
      if (recording.status <= known.status) return;
      known = recording;
      contents_.share(known);
      std::swap(merged.kept[i], merged.left_out.back());
      return;
    }
    contents_.share(step.recordings.emplace_back(recording));
    merged.kept.push_back(origin);
  }

  /// Whether recording `i` of the joined step does what `recording` did.
  bool is_same(const MergedStep& merged, std::size_t i, const trace::Recording& recording,
               Origin origin) const {
    const trace::Recording& known = out_.trace.find_step(merged.name)->recordings[i];
    const bool is_warm_up = known.status == trace::Status::kWarmUp;
    if (is_warm_up != (recording.status == trace::Status::kWarmUp)) return false;
    if (is_warm_up) return true;
    const Relation relation = relation_of(known, recording);
    if (relation != Relation::kConflict) return relation == Relation::kSame;
    const Origin other = merged.kept[i];
    fail(origin.trace, other.trace,
         fmt::format("step {}: recording {} and its recording {} were entered in the same way and "
                     "did different things; `steptape diff` says in what they differ",
                     merged.name, origin.recording, other.recording));
  }

  void take_state() {
    const auto first = std::ranges::find_if(
        traces_, [](const trace::Trace& trace) { return !trace.state.empty(); });
    if (first == traces_.end()) return;
    out_.state_of = static_cast<std::size_t>(first - traces_.begin());
    std::unordered_map<std::string_view, const trace::Saved*> known;
    std::set<std::string> differing;
    for (const trace::Trace& trace : traces_) {
      for (const trace::Saved& saved : trace.state) {
        const auto [entry, is_new] = known.try_emplace(saved.path, &saved);
        if (is_new) {
          out_.trace.state.push_back(saved);
        } else if (*entry->second != saved) {
          differing.insert(saved.path);
        }
      }
    }
    out_.differing.assign(differing.begin(), differing.end());
  }

  std::span<const trace::Trace> traces_;
  std::span<const std::string> names_;
  Contents contents_;
  Merged out_;
};

}  // namespace

Merged merge(std::span<const trace::Trace> traces, std::span<const std::string> names) {
  return Merger(traces, names).merge();
}

namespace {

trace::Trace trace_of(const trace::Recording& recording) {
  trace::Trace trace;
  trace.steps.push_back({"step", "", {recording}});
  return trace;
}

bool decides_by_reads(const trace::Recording& recording) {
  return std::ranges::any_of(recording.reads, [](const trace::HostRead& read) {
    return read.use == trace::ReadUse::kChecked;
  });
}

/// The one that stands for a step's configuration: warm-ups may still lack what they create.
const trace::Recording* representative_of(const trace::Step& step) {
  const auto is_variant = [](const trace::Recording& recording) {
    return recording.status != trace::Status::kWarmUp;
  };
  const auto found = std::ranges::find_if(step.recordings, is_variant);
  if (found != step.recordings.end()) return &*found;
  return step.recordings.empty() ? nullptr : &step.recordings.front();
}

std::string kind_of(const trace::Value& value) {
  if (std::holds_alternative<trace::TensorRef>(value.data)) return "a tensor";
  return is_number(value) ? "a number" : "a value";
}

bool is_of_model(const trace::Tracked& tracked) {
  return tracked.role == trace::Role::kParameter || tracked.role == trace::Role::kModuleBuffer;
}

/// What variants of one step have in common: what it takes, gives and updates, and its modules.
std::vector<trace::Property> properties_of(const trace::Recording& recording) {
  std::vector<trace::Property> properties;
  const auto add = [&properties](const std::string& path, std::string words) {
    properties.push_back({path, path, std::move(words)});
  };
  for (const trace::Input& input : recording.inputs) add(input.path, kind_of(input.value));
  add("results", std::to_string(recording.results.size() - recording.observed));
  add("updates",
      recording.updates.empty() ? "none" : fmt::format("{}", fmt::join(recording.updates, ", ")));
  for (const trace::Module& module : recording.modules) add(module.path, module.type);
  for (const trace::Tracked& tracked : recording.tracked) {
    if (is_of_model(tracked))
      add(tracked.path, trace::words_of_geometry(recording, tracked.tensor));
  }
  return properties;
}

std::optional<std::string> conflict_of(const trace::Recording& a, const trace::Recording& b) {
  const std::vector<trace::Finding> found = differences(properties_of(a), properties_of(b));
  if (!found.empty()) return found.front().text();
  for (const LayoutDifference& layout : layout_differences(a, b)) {
    if (layout.is_of_groups) return layout.text();
  }
  return std::nullopt;
}

bool goes_backward(const trace::Step& step) {
  return std::ranges::any_of(step.recordings, [](const trace::Recording& recording) {
    return std::ranges::any_of(
        recording.ops, [](const trace::Op& op) { return op.phase == trace::Phase::kBackward; });
  });
}

bool same_training_flags(const trace::Recording& a, const trace::Recording& b) {
  return std::ranges::equal(a.modules, b.modules, {}, &trace::Module::training,
                            &trace::Module::training);
}

std::optional<std::string> conflict_of(const trace::Step& a, const trace::Step& b) {
  const trace::Recording* const x = representative_of(a);
  const trace::Recording* const y = representative_of(b);
  if (x == nullptr || y == nullptr) return std::nullopt;
  if (auto conflict = conflict_of(*x, *y)) return conflict;
  if (goes_backward(a) != goes_backward(b) && same_training_flags(*x, *y)) {
    const auto words = [](bool does) { return does ? "goes backward" : "goes forward alone"; };
    return fmt::format("it {} → {}", words(goes_backward(a)), words(goes_backward(b)));
  }
  return std::nullopt;
}

/// Parameters and module buffers by path: one model has one of each, whatever step uses it.
std::map<std::string, std::string> model_of(const trace::Trace& trace) {
  std::map<std::string, std::string> geometries;
  for (const trace::Step& step : trace.steps) {
    const trace::Recording* const recording = representative_of(step);
    if (recording == nullptr) continue;
    for (const trace::Tracked& tracked : recording->tracked) {
      if (!is_of_model(tracked)) continue;
      geometries.emplace(tracked.path, words_of_geometry(*recording, tracked.tensor));
    }
  }
  return geometries;
}

std::optional<std::string> conflict_of_models(const trace::Trace& a, const trace::Trace& b) {
  const std::map<std::string, std::string> others = model_of(b);
  for (const auto& [path, geometry] : model_of(a)) {
    const auto other = others.find(path);
    if (other != others.end() && other->second != geometry) {
      return trace::Finding{path, geometry, other->second}.text();
    }
  }
  return std::nullopt;
}

/// Versions, and what the bits of a replay depend on.
std::optional<std::string> conflict_of_environments(const trace::Trace& a, const trace::Trace& b) {
  const auto alone = [](const trace::Trace& trace) {
    return trace::Trace{trace.producer, {}, trace.environment, {}, {}};
  };
  const Diff found = compare(alone(a), alone(b));
  const std::vector<trace::Finding>& findings = found.findings.of(Section::kEnvironment);
  if (findings.empty()) return std::nullopt;
  return findings.front().text();
}

}  // namespace

Relation relation_of(const trace::Recording& a, const trace::Recording& b) {
  if (a == b) return Relation::kSame;
  if (!same_entry(a, b)) return Relation::kVariants;
  const Diff found = compare(trace_of(a), trace_of(b));
  if (found.count(Section::kGuards) > 0) return Relation::kVariants;
  // Hyperparameters are left out: those that no formula follows are part of the entry.
  constexpr std::array kThatCount = {Section::kStructure, Section::kFormulas, Section::kModules,
                                     Section::kConstants};
  if (std::ranges::all_of(kThatCount,
                          [&found](Section section) { return found.count(section) == 0; })) {
    return Relation::kSame;
  }
  return decides_by_reads(a) || decides_by_reads(b) ? Relation::kVariants : Relation::kConflict;
}

std::optional<std::string> conflict_of(const trace::Trace& a, const trace::Trace& b) {
  if (auto conflict = conflict_of_environments(a, b)) return conflict;
  for (const trace::Step& step : b.steps) {
    const trace::Step* const known = a.find_step(step.name);
    if (known == nullptr) continue;
    if (auto conflict = conflict_of(*known, step)) {
      return fmt::format("step {}: {}", step.name, *conflict);
    }
  }
  return conflict_of_models(a, b);
}

}  // namespace steptape::diff
