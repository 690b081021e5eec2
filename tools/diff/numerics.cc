#include "tools/diff/numerics.h"

#include <algorithm>
#include <array>
#include <utility>

#include "diff/numerics/numeric_words.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"

namespace steptape::tools {
namespace {

Json entered_json(const diff::NumericDifferences& found, const trace::Recording& a) {
  return each(found.entered, [&a](const diff::EnteredBuffer& buffer) {
    return Json{{"path", a.buffers[buffer.a].path}, {"noisy", buffer.is_noisy}};
  });
}

Json modules_json(const diff::NumericDifferences& found, const trace::Recording& a) {
  return each(stats_of(found, a), [](const diff::NumericStat& stat) {
    return Json{{"module", stat.module},
                {"origins", stat.origins},
                {"receivers", stat.receivers},
                {"unknown", stat.unknown},
                {"noisy", stat.noisy}};
  });
}

using diff::NumericOp;
using diff::NumericStatus;

/// So many buffers at entry, and ops of each kind, are shown where not all are.
constexpr std::size_t kMostEntered = 2;
constexpr std::size_t kMostOps = 8;

/// "1 origin, 40 receivers, 3 noisy": those that occur.
std::string words_of_counts(std::size_t origins, std::size_t receivers, std::size_t unknown,
                            std::size_t noisy) {
  std::string words;
  const auto add = [&words](std::size_t count, const std::string& what) {
    if (count > 0) words += (words.empty() ? "" : ", ") + what;
  };
  add(origins, count_of(origins, "origin"));
  add(receivers, count_of(receivers, "receiver"));
  add(unknown, fmt::format("{} unknown", unknown));
  add(noisy, fmt::format("{} noisy", noisy));
  return words;
}

std::string words_of_call(const diff::StepDiff& step, const diff::RecordingDiff& recording) {
  const std::string place = recording.call == 0 ? fmt::format("recording {}", recording.pair.a)
                                                : fmt::format("call {}", recording.call);
  return fmt::format("{}: {}", step.name, place);
}

class NumericsText {
 public:
  NumericsText(Lines& out, const diff::NumericDifferences& found, const diff::OpStream& a,
               const diff::OpStream& b, Detail detail)
      : out_(out), found_(found), a_(a), b_(b), detail_(detail) {}

  void put() {
    const std::string counts = words_of_counts(
        found_.count(NumericStatus::kOrigin), found_.count(NumericStatus::kReceiver),
        found_.count(NumericStatus::kUnknown), found_.noisy());
    out_.line("{}  {} compared{}{}", toned(Tone::kHeading, "numerics"),
              count_of(found_.compared, "op"), counts.empty() ? "" : ": ", counts);
    const std::string entered = words_of_entered(
        found_, a_.recording(), detail_ == Detail::kAll ? found_.entered.size() : kMostEntered);
    if (!entered.empty()) out_.line("  entered with other bits: {}", shown(entered));
    if (detail_ == Detail::kCounts) return put_modules();
    put_ops(
        [](const NumericOp& op) { return !op.is_noisy && op.status == NumericStatus::kOrigin; });
    put_ops(
        [](const NumericOp& op) { return !op.is_noisy && op.status != NumericStatus::kOrigin; });
    if (detail_ == Detail::kAll) put_ops([](const NumericOp& op) { return op.is_noisy; });
  }

 private:
  void put_modules() {
    const auto stats = stats_of(found_, a_.recording());
    std::size_t widest = 0;
    const auto name_of = [](const diff::NumericStat& stat) { return shown_module(stat.module); };
    for (const diff::NumericStat& stat : stats) widest = std::max(widest, name_of(stat).size());
    for (const diff::NumericStat& stat : stats) {
      out_.line("  {:<{}}  {}", name_of(stat), widest,
                words_of_counts(stat.origins, stat.receivers, stat.unknown, stat.noisy));
    }
  }

  template <typename Choose>
  void put_ops(Choose&& choose) {
    const auto count = static_cast<std::size_t>(std::ranges::count_if(found_.ops, choose));
    const std::size_t most = detail_ == Detail::kAll ? count : kMostOps;
    std::size_t put = 0;
    for (const NumericOp& op : found_.ops) {
      if (!choose(op)) continue;
      if (++put > most) break;
      const std::string line =
          fmt::format("{:<8}  {}: {}", op.is_noisy ? "noisy" : name_of(op.status),
                      words_of_place(op, a_, b_), words_of_cause(op, a_, b_));
      const bool is_origin = op.status == NumericStatus::kOrigin && !op.is_noisy;
      out_.line("  {}", is_origin ? toned(Tone::kBad, shown(line)) : shown(line));
    }
    if (count > most) out_.line("  and {} more", count - most);
  }

  Lines& out_;
  const diff::NumericDifferences& found_;
  const diff::OpStream& a_;
  const diff::OpStream& b_;
  Detail detail_;
};

}  // namespace

Json numeric_op_json(const diff::NumericOp& op, const diff::OpStream& a, const diff::OpStream& b) {
  const trace::Recording& recording = a.recording();
  const trace::Op& of_a = recording.ops[op.a];
  const std::string scope(recording.scope_of(of_a));
  Json json = {{"a", op.a},
               {"b", op.b},
               {"status", name_of(op.status)},
               {"noisy", op.is_noisy},
               {"operator", recording.operator_of(of_a).full_name()},
               {"call", a.call_of(of_a)},
               {"phase", of_a.phase == trace::Phase::kForward ? "forward" : "backward"},
               {"scope", scope},
               {"line", diff::line_of(scope)},
               {"input", nullptr}};
  const diff::InputWords input = words_of_input(op, a, b);
  if (!input.name.empty()) json["input"] = {{"name", input.name}, {"a", input.a}, {"b", input.b}};
  return json;
}

Json numerics_json(const diff::NumericDifferences& found, const diff::OpStream& a,
                   const diff::OpStream& b) {
  if (!found.is_compared()) return {{"compared", nullptr}, {"not_compared", found.not_compared}};
  const auto op_json = [&](const diff::NumericOp& op) { return numeric_op_json(op, a, b); };
  return {{"compared", found.compared},
          {"origins", found.count(diff::NumericStatus::kOrigin)},
          {"receivers", found.count(diff::NumericStatus::kReceiver)},
          {"unknown", found.count(diff::NumericStatus::kUnknown)},
          {"noisy", found.noisy()},
          {"entered", entered_json(found, a.recording())},
          {"modules", modules_json(found, a.recording())},
          {"ops", each(found.ops, op_json)}};
}

std::string words_of_numerics(const diff::Diff& diff, const trace::Trace& a,
                              const trace::Trace& b) {
  const auto [step, first] = diff.first_numeric();
  if (first == nullptr) return fmt::format("{} noisy", noisy_numerics(diff));
  const diff::OpStream stream_a(a.find_step(step->name)->recordings[first->pair.a]);
  const diff::OpStream stream_b(b.find_step(step->name)->recordings[first->pair.b]);
  std::string words = words_of_call(*step, *first);
  const std::string entered = words_of_entered(first->numerics, stream_a.recording(), kMostEntered);
  if (!entered.empty()) words += ": entered with other bits: " + entered;
  const NumericOp* op = first->numerics.first();
  if (op != nullptr && (entered.empty() || op->status == NumericStatus::kOrigin)) {
    words += fmt::format("{} {} {}", entered.empty() ? ":" : ";", name_of(op->status),
                         words_of_place(*op, stream_a, stream_b));
  }
  return words;
}

void put_numerics(Lines& out, const diff::NumericDifferences& found, const diff::OpStream& a,
                  const diff::OpStream& b, Detail detail) {
  NumericsText(out, found, a, b, detail).put();
}

std::string note_of_numerics(const diff::Diff& diff) {
  constexpr std::string_view kRemedy =
      "record the same calls in both, with digests (Options::record and Options::digests; in "
      "Python record= and digests=True)";
  std::size_t pairs = 0;
  std::size_t compared = 0;
  std::string why;
  for (const diff::StepDiff& step : diff.steps) {
    for (const diff::RecordingDiff& recording : step.recordings) {
      ++pairs;
      compared += recording.numerics.is_compared() ? 1 : 0;
      if (why.empty()) why = recording.numerics.not_compared;
    }
  }
  if (compared == pairs) return {};
  const std::string what =
      compared == 0
          ? std::string("results of ops were not compared")
          : fmt::format("results of ops were compared in {} of {} recordings", compared, pairs);
  return fmt::format("{}: {}; {}\n", what, why, kRemedy);
}

std::size_t noisy_numerics(const diff::Diff& diff) {
  std::size_t noisy = 0;
  for (const diff::StepDiff& step : diff.steps) {
    for (const diff::RecordingDiff& recording : step.recordings) {
      noisy += recording.numerics.noisy();
    }
  }
  return noisy;
}

}  // namespace steptape::tools
