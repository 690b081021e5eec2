#include "diff/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "diff/merge_conflict.h"
#include "steptape/error.h"

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
      if (recording.standing <= known.standing) return;
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
    const bool is_warm_up = known.standing == trace::Standing::kWarmUp;
    if (is_warm_up != (recording.standing == trace::Standing::kWarmUp)) return false;
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

}  // namespace steptape::diff
