#include "diff/ledger/ledger_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "trace/named.h"

namespace steptape::diff {
namespace {

constexpr std::array kParts = {
    trace::Named{CallPart::kInputs, "inputs"},
    trace::Named{CallPart::kResults, "results"},
    trace::Named{CallPart::kGradients, "gradients"},
    trace::Named{CallPart::kParameters, "parameters"},
    trace::Named{CallPart::kGenerators, "generators"},
};
constexpr std::array kAllParts = trace::values_of(kParts);
static_assert(kAllParts.size() == kCallParts);

constexpr std::array kPartStatuss = {
    trace::Named{PartStatus::kNotTaken, "not taken"},
    trace::Named{PartStatus::kEqual, "equal"},
    trace::Named{PartStatus::kDiffers, "differs"},
};

std::uint64_t digest_of_line(const trace::LedgerLine& line, CallPart part) {
  switch (part) {
    case CallPart::kInputs:
      return line.inputs;
    case CallPart::kResults:
      return line.results;
    case CallPart::kGradients:
      return line.gradients;
    case CallPart::kParameters:
      return line.parameters;
    case CallPart::kGenerators:
      return line.generators;
  }
  return 0;
}

CallDifference compare(const trace::LedgerLine& a, const trace::LedgerLine& b) {
  CallDifference out{.call = a.call};
  for (const CallPart part : kAllParts) {
    const std::uint64_t x = digest_of_line(a, part);
    const std::uint64_t y = digest_of_line(b, part);
    if (x == 0 || y == 0) continue;
    out.parts[static_cast<std::size_t>(part)] = x == y ? PartStatus::kEqual : PartStatus::kDiffers;
  }
  return out;
}

/// The lines of one step by their calls; of two lines of one call the later holds.
using Calls = std::vector<const trace::LedgerLine*>;

Calls calls_of(const trace::Ledger& ledger, std::string_view step) {
  Calls calls;
  const auto known = std::ranges::find(ledger.steps, step);
  if (known == ledger.steps.end()) return calls;
  const auto number = static_cast<std::size_t>(known - ledger.steps.begin());
  for (const trace::LedgerLine& line : ledger.lines) {
    if (line.step == number) calls.push_back(&line);
  }
  std::ranges::reverse(calls);
  std::ranges::stable_sort(calls, {}, &trace::LedgerLine::call);
  const auto is_one_call = [](const trace::LedgerLine* a, const trace::LedgerLine* b) {
    return a->call == b->call;
  };
  calls.erase(std::unique(calls.begin(), calls.end(), is_one_call), calls.end());
  return calls;
}

std::vector<CallTimeDifference> compare_times(const Calls& a, const Calls& b) {
  std::map<trace::CallOutcome, std::array<std::vector<std::uint64_t>, 2>> times;
  for (const trace::LedgerLine* line : a) times[line->outcome][0].push_back(line->microseconds);
  for (const trace::LedgerLine* line : b) times[line->outcome][1].push_back(line->microseconds);
  std::vector<CallTimeDifference> out;
  for (auto& [outcome, both] : times) {
    if (both[0].empty() || both[1].empty()) continue;
    out.push_back({{times_of(std::move(both[0])), times_of(std::move(both[1]))}, outcome});
  }
  return out;
}

/// Whether all that differs in the call differs between `line` and a line of a control too.
bool is_noise(const CallDifference& found, const trace::LedgerLine& line,
              const std::vector<Calls>& controls) {
  return std::ranges::any_of(controls, [&](const Calls& calls) {
    const auto again = std::ranges::lower_bound(calls, line.call, {}, &trace::LedgerLine::call);
    if (again == calls.end() || (*again)->call != line.call) return false;
    const CallDifference noise = compare(line, **again);
    return std::ranges::all_of(kAllParts, [&](CallPart part) {
      return found.of(part) != PartStatus::kDiffers || noise.of(part) == PartStatus::kDiffers;
    });
  });
}

/// Fills in `out`; the line of `a` whose call differs first, noise left out, or null.
const trace::LedgerLine* compare_calls(const Calls& a, const Calls& b,
                                       const std::vector<Calls>& controls, StepLedgerDiff& out) {
  const trace::LedgerLine* first = nullptr;
  std::uint64_t last_equal = 0;
  auto other = b.begin();
  for (const trace::LedgerLine* line : a) {
    while (other != b.end() && (*other)->call < line->call) ++other;
    if (other == b.end() || (*other)->call != line->call) continue;
    ++out.compared;
    const CallDifference found = compare(*line, **other);
    const auto has = [&found](PartStatus status) {
      return std::ranges::find(found.parts, status) != found.parts.end();
    };
    if (!has(PartStatus::kDiffers)) {
      if (has(PartStatus::kEqual)) {
        last_equal = line->call;
      } else {
        ++out.without_digests;
      }
      continue;
    }
    ++out.differing;
    if (is_noise(found, *line, controls)) {
      ++out.noisy;
      continue;
    }
    if (first != nullptr) continue;
    first = line;
    out.first = found;
    out.first->is_entry_equal = last_equal != 0 && last_equal + 1 == line->call;
  }
  out.only_in_a = a.size() - out.compared;
  out.only_in_b = b.size() - out.compared;
  return first;
}

std::string words_of_lonely(const StepLedgerDiff& step) {
  const bool is_of_a = step.only_in_a > 0;
  const std::uint64_t count = is_of_a ? step.only_in_a : step.only_in_b;
  return fmt::format("{}: {} call{} only in the {}", step.name, count, count == 1 ? "" : "s",
                     is_of_a ? "first" : "second");
}

}  // namespace

std::span<const CallPart> call_parts() noexcept { return kAllParts; }
std::string_view name_of(CallPart part) noexcept { return find_name(kParts, part); }
std::string_view name_of(PartStatus status) noexcept { return find_name(kPartStatuss, status); }

bool RankCall::differs(CallPart part) const {
  return std::ranges::any_of(of(part),
                             [](std::size_t group) { return group != 0 && group != kNone; });
}

std::vector<RankCall> calls_of_ranks(std::span<const trace::Ledger* const> ledgers,
                                     std::string_view step) {
  std::map<std::uint64_t, RankCall> calls;
  for (std::size_t rank = 0; rank < ledgers.size(); ++rank) {
    for (const trace::LedgerLine* line : calls_of(*ledgers[rank], step)) {
      RankCall& call = calls[line->call];
      call.call = line->call;
      call.lines.resize(ledgers.size());
      call.lines[rank] = line;
    }
  }
  std::vector<RankCall> out;
  for (auto& [number, call] : calls) {
    if (std::ranges::count(call.lines, nullptr) + 1 >= std::ssize(call.lines)) continue;
    for (const CallPart part : kAllParts) {
      std::map<std::uint64_t, std::size_t> known;
      for (const trace::LedgerLine* line : call.lines) {
        const std::uint64_t digest = line == nullptr ? 0 : digest_of_line(*line, part);
        call.groups[static_cast<std::size_t>(part)].push_back(
            digest == 0 ? RankCall::kNone : known.try_emplace(digest, known.size()).first->second);
      }
    }
    out.push_back(std::move(call));
  }
  return out;
}

std::string CallDifference::words_of(PartStatus status) const {
  std::string words;
  for (const CallPart part : kAllParts) {
    if (of(part) == status) words += fmt::format("{}{}", words.empty() ? "" : ", ", name_of(part));
  }
  return words;
}

std::string_view CallDifference::origin() const noexcept {
  switch (of(CallPart::kInputs)) {
    case PartStatus::kEqual:
      return is_entry_equal ? "it begins in this call" : "it begins in this call or before it";
    case PartStatus::kDiffers:
      return "it came with the inputs";
    case PartStatus::kNotTaken:
      break;
  }
  return "inputs were not compared";
}

std::uint64_t LedgerDiff::differing() const noexcept {
  std::uint64_t count = 0;
  for (const StepLedgerDiff& step : steps) {
    count += step.differing - step.noisy + step.only_in_a + step.only_in_b;
  }
  return count;
}

std::uint64_t LedgerDiff::noisy() const noexcept {
  std::uint64_t count = 0;
  for (const StepLedgerDiff& step : steps) count += step.noisy;
  return count;
}

std::uint64_t LedgerDiff::differing_times() const noexcept {
  std::uint64_t count = 0;
  for (const StepLedgerDiff& step : steps) {
    count +=
        static_cast<std::uint64_t>(std::ranges::count_if(step.times, &CallTimeDifference::differs));
  }
  return count;
}

std::string LedgerDiff::verdict() const {
  if (first != kNoStep) {
    const CallDifference& difference = *steps[first].first;
    return fmt::format("{}: call {}: {}", steps[first].name, difference.call,
                       difference.words_of(PartStatus::kDiffers));
  }
  for (const StepLedgerDiff& step : steps) {
    if (step.only_in_a + step.only_in_b > 0) return words_of_lonely(step);
  }
  return {};
}

LedgerDiff compare(const trace::Ledger& a, const trace::Ledger& b, std::string_view step,
                   std::span<const trace::Ledger> controls) {
  std::vector<std::string> names = a.steps;
  for (const std::string& name : b.steps) {
    if (std::ranges::find(a.steps, name) == a.steps.end()) names.push_back(name);
  }
  LedgerDiff out;
  const trace::LedgerLine* first = nullptr;
  for (const std::string& name : names) {
    if (!step.empty() && name != step) continue;
    const Calls calls_a = calls_of(a, name);
    const Calls calls_b = calls_of(b, name);
    std::vector<Calls> calls_of_controls;
    for (const trace::Ledger& control : controls)
      calls_of_controls.push_back(calls_of(control, name));
    StepLedgerDiff& found = out.steps.emplace_back();
    found.name = name;
    const trace::LedgerLine* line = compare_calls(calls_a, calls_b, calls_of_controls, found);
    found.times = compare_times(calls_a, calls_b);
    if (line == nullptr || (first != nullptr && first < line)) continue;
    first = line;
    out.first = out.steps.size() - 1;
  }
  for (std::size_t i = 0; i < out.steps.size(); ++i) {
    if (i != out.first && out.steps[i].first) out.steps[i].first->is_entry_equal = false;
  }
  return out;
}

LedgerSummary summarize(const trace::Ledger& ledger, std::string_view step) {
  LedgerSummary summary;
  std::map<trace::CallOutcome, std::vector<std::uint64_t>> times;
  std::map<GuardKind, std::uint64_t> verdicts;
  for (const trace::LedgerLine& line : ledger.lines) {
    if (!step.empty() && ledger.steps[line.step] != step) continue;
    ++summary.calls;
    summary.replayed += line.outcome == trace::CallOutcome::kReplayed ? 1 : 0;
    times[line.outcome].push_back(line.microseconds);
    if (line.verdict != GuardKind::kNone) ++verdicts[line.verdict];
  }
  for (auto& [outcome, microseconds] : times) {
    summary.outcomes.push_back({outcome, times_of(std::move(microseconds))});
  }
  for (const auto& [kind, calls] : verdicts) summary.verdicts.push_back({kind, calls});
  return summary;
}

}  // namespace steptape::diff
