#include "diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "diff/layout.h"
#include "diff/sections.h"
#include "trace/compare/guard_differences.h"
#include "trace/named.h"

namespace steptape::diff {
namespace {

constexpr std::array kNames = {
    trace::Named{Section::kEnvironment, "environment"},
    trace::Named{Section::kLedger, "ledger"},
    trace::Named{Section::kNumerics, "numerics"},
    trace::Named{Section::kStructure, "structure"},
    trace::Named{Section::kFormulas, "formulas"},
    trace::Named{Section::kOptimizer, "optimizer"},
    trace::Named{Section::kModules, "modules"},
    trace::Named{Section::kGuards, "guards"},
    trace::Named{Section::kConstants, "constants"},
    trace::Named{Section::kRefusals, "refusals"},
    trace::Named{Section::kMemory, "memory"},
    trace::Named{Section::kPlace, "place"},
    trace::Named{Section::kTime, "time"},
};
constexpr std::array kAll = trace::values_of(kNames);
static_assert(kAll.size() == kSections);

void add(std::vector<trace::Finding>& to, std::vector<trace::Finding> findings) {
  to.insert(to.end(), std::make_move_iterator(findings.begin()),
            std::make_move_iterator(findings.end()));
}

std::vector<trace::Property> properties_of(std::string_view word,
                                           const std::vector<trace::Fact>& facts) {
  std::vector<trace::Property> properties;
  for (const trace::Fact& fact : facts) {
    properties.push_back({fact.name, fmt::format("{} {}", word, fact.name), fact.value});
  }
  return properties;
}

/// What of a run its numbers follow from.
std::vector<trace::Fact> told_of_run(const trace::Trace& trace) {
  constexpr std::array<std::string_view, 4> kTold = {"config", "seed", "rank", "world"};
  std::vector<trace::Fact> facts;
  std::ranges::copy_if(trace.run, std::back_inserter(facts), [&](const trace::Fact& fact) {
    return std::ranges::find(kTold, fact.name) != kTold.end();
  });
  return facts;
}

std::vector<trace::Property> refusals_of(const trace::Recording& recording) {
  std::vector<trace::Property> properties;
  for (const Refusal& refusal : recording.refusals) {
    const std::string code(name_of(refusal.code));
    properties.push_back({code, code, refusal.message});
  }
  return properties;
}

/// Told with the optimizer, the modules, the formulas or what the step does beside its ops.
bool is_told_elsewhere(GuardKind kind) {
  switch (kind) {
    case GuardKind::kTraining:
    case GuardKind::kModuleOption:
    case GuardKind::kSubModules:
    case GuardKind::kParameterGroups:
    case GuardKind::kHyperparameter:
    case GuardKind::kOptimizerState:
    case GuardKind::kPredicate:
    case GuardKind::kHostRead:
      return true;
    default:
      return false;
  }
}

/// Each two lines of the program that paired ops come from, once.
std::vector<trace::Finding> scope_differences(const trace::Recording& a, const trace::Recording& b,
                                              const std::vector<OpPair>& pairs) {
  std::vector<trace::Finding> findings;
  std::unordered_set<std::uint64_t> told;
  const auto words_of = [](const trace::Recording& recording, trace::Index scope) {
    return scope == trace::kNone ? std::string("nowhere") : recording.scopes[scope];
  };
  for (const OpPair& pair : pairs) {
    const trace::Index x = a.ops[pair.a].scope;
    const trace::Index y = b.ops[pair.b].scope;
    if (!told.insert(std::uint64_t{x} << 32U | y).second) continue;
    std::string words_x = words_of(a, x);
    std::string words_y = words_of(b, y);
    if (words_x == words_y) continue;
    findings.push_back({fmt::format("op {}", pair.a), std::move(words_x), std::move(words_y)});
  }
  return findings;
}

RecordingDiff diff_recordings(const RecordingPair& pair, const trace::Recording& a,
                              const trace::Recording& b) {
  const OpStream stream_a(a);
  const OpStream stream_b(b);
  RecordingDiff out{pair, false, a.call == b.call ? a.call : 0, compare(stream_a, stream_b), {},
                    {},   {}};
  out.modules = stats_of(out.stream, stream_a, stream_b);
  out.numerics = numeric_differences(stream_a, stream_b, out.stream.alignment);
  const Alignment& alignment = out.stream.alignment;
  Findings& findings = out.findings;
  if (a.status != b.status) {
    findings.of(Section::kEnvironment)
        .push_back({"status", std::string(name_of(a.status)), std::string(name_of(b.status))});
  }
  findings.of(Section::kPlace) = scope_differences(a, b, alignment.pairs);
  findings.of(Section::kStructure) = outcome_differences(a, b);
  findings.of(Section::kFormulas) = formula_differences(stream_a, stream_b, alignment);
  for (const LayoutDifference& layout : layout_differences(a, b)) {
    findings.of(Section::kOptimizer).push_back(layout);
  }
  findings.of(Section::kModules) = module_differences(a, b);
  for (const trace::GuardDifference& guard : guard_differences(a, b)) {
    if (!is_told_elsewhere(guard.kind)) findings.of(Section::kGuards).push_back(guard);
  }
  findings.of(Section::kConstants) = constant_differences(stream_a, stream_b, alignment);
  findings.of(Section::kRefusals) = differences(refusals_of(a), refusals_of(b));
  findings.of(Section::kMemory) = memory_differences(a, b);
  return out;
}

void tell_lonely(Findings& findings, const trace::Step& step, const std::vector<bool>& is_paired,
                 bool is_of_a, std::vector<std::uint64_t>& calls) {
  for (std::size_t i = 0; i < step.recordings.size(); ++i) {
    if (is_paired[i]) continue;
    if (is_besides(step.recordings[i])) {
      calls.push_back(step.recordings[i].call);
      continue;
    }
    trace::Finding finding{fmt::format("recording {}", i), "absent", "absent"};
    (is_of_a ? finding.expected : finding.found) = name_of(step.recordings[i].status);
    findings.of(Section::kStructure).push_back(std::move(finding));
  }
}

/// What of `found` differs too between the recording and those of another run of its program.
void mark_noise(NumericDifferences& found, const trace::Step& a, std::size_t position,
                const trace::Step& control) {
  const trace::Recording& recording = a.recordings[position];
  for (const RecordingPair& pair : pair_recordings(a, control)) {
    if (pair.a != position) continue;
    const OpStream stream_a(recording);
    const OpStream stream_b(control.recordings[pair.b]);
    const NumericDifferences again =
        numeric_differences(stream_a, stream_b, align(stream_a, stream_b));
    found.mark(again.as_noise(recording), recording);
  }
}

StepDiff diff_steps(const trace::Step& a, const trace::Step& b,
                    std::span<const trace::Trace> controls) {
  StepDiff out{a.name, {}, {}, op_time_differences(a, b), {}, {}, {}};
  if (!out.op_times && (has_op_times(a) || has_op_times(b))) {
    out.op_times_only_in = has_op_times(a) ? "a" : "b";
  }
  if (a.place != b.place) out.findings.of(Section::kPlace).push_back({"wrap", a.place, b.place});
  std::vector<bool> has_a(a.recordings.size(), false);
  std::vector<bool> has_b(b.recordings.size(), false);
  for (const RecordingPair& pair : pair_recordings(a, b)) {
    has_a[pair.a] = has_b[pair.b] = true;
    out.recordings.push_back(diff_recordings(pair, a.recordings[pair.a], b.recordings[pair.b]));
    NumericDifferences& numerics = out.recordings.back().numerics;
    for (const trace::Trace& control : controls) {
      const trace::Step* again = control.find_step(a.name);
      if (again != nullptr && numerics.count() > 0) mark_noise(numerics, a, pair.a, *again);
    }
  }
  const auto is_warm_up = [&a](const RecordingDiff& diff) {
    return a.recordings[diff.pair.a].status == trace::Status::kWarmUp;
  };
  const bool has_variant = !std::ranges::all_of(out.recordings, is_warm_up);
  for (RecordingDiff& diff : out.recordings) diff.is_beside = has_variant && is_warm_up(diff);
  tell_lonely(out.findings, a, has_a, true, out.calls_only_in_a);
  tell_lonely(out.findings, b, has_b, false, out.calls_only_in_b);
  return out;
}

}  // namespace

std::span<const Section> sections() noexcept { return kAll; }
std::string_view name_of(Section section) noexcept { return find_name(kNames, section); }
Section section_of(std::string_view name) {
  if (name == "timings") return Section::kTime;
  if (name == "host") return Section::kEnvironment;
  const auto found = std::ranges::find(kNames, name, &trace::Named<Section>::name);
  if (found != kNames.end()) return found->value;
  std::string names;
  for (const auto& row : kNames) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("no section is called `{}`: there are {}", name, names));
}

std::size_t RecordingDiff::count(Section section) const noexcept {
  if (section == Section::kNumerics) return numerics.count();
  const std::size_t edits = section == Section::kStructure ? stream.edits.size() : 0;
  return edits + findings.of(section).size();
}

bool Diff::compares(Section section) const noexcept {
  switch (section) {
    case Section::kNumerics:
      return std::ranges::any_of(steps, [](const StepDiff& step) {
        return std::ranges::any_of(step.recordings, [](const RecordingDiff& recording) {
          return recording.numerics.is_compared();
        });
      });
    case Section::kLedger:
      return ledger.has_value();
    case Section::kTime:
      return ledger.has_value() ||
             std::ranges::any_of(steps, [](const StepDiff& step) { return !!step.op_times; });
    default:
      return true;
  }
}

std::size_t Diff::count(Section section) const noexcept {
  if (section == Section::kLedger) return ledger ? ledger->differing() : 0;
  std::size_t count = findings.of(section).size();
  if (section == Section::kTime && ledger) count += ledger->differing_times();
  for (const StepDiff& step : steps) {
    count += step.findings.of(section).size();
    if (section == Section::kTime && step.op_times) count += step.op_times->differing();
    for (const RecordingDiff& recording : step.recordings) {
      if (recording.is_beside && section != Section::kNumerics) continue;
      count += recording.count(section);
    }
  }
  return count;
}

RecordingOfStep Diff::first_numeric() const noexcept {
  for (const StepDiff& step : steps) {
    const RecordingDiff* first = nullptr;
    for (const RecordingDiff& recording : step.recordings) {
      if (recording.numerics.count() == 0) continue;
      if (first == nullptr || recording.call < first->call) first = &recording;
    }
    if (first != nullptr) return {&step, first};
  }
  return {};
}

Diff compare(const trace::Trace& a, const trace::Trace& b, std::string_view step,
             std::span<const trace::Trace> controls) {
  Diff out;
  auto& environment = out.findings.of(Section::kEnvironment);
  add(environment,
      differences(properties_of("producer", a.producer), properties_of("producer", b.producer)));
  add(environment, differences(properties_of("environment", a.environment),
                               properties_of("environment", b.environment)));
  add(environment,
      differences(properties_of("run", told_of_run(a)), properties_of("run", told_of_run(b))));
  auto& steps = out.findings.of(Section::kStructure);
  const auto is_wanted = [step](const trace::Step& other) {
    return step.empty() || other.name == step;
  };
  for (const trace::Step& x : a.steps) {
    if (!is_wanted(x)) continue;
    const trace::Step* y = b.find_step(x.name);
    if (y != nullptr) {
      out.steps.push_back(diff_steps(x, *y, controls));
    } else {
      steps.push_back({"step " + x.name, "recorded", "absent"});
    }
  }
  for (const trace::Step& y : b.steps) {
    if (!is_wanted(y) || a.find_step(y.name) != nullptr) continue;
    steps.push_back({"step " + y.name, "absent", "recorded"});
  }
  return out;
}

}  // namespace steptape::diff
