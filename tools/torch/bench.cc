#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "diff/numerics/numeric_words.h"
#include "diff/op_stream.h"
#include "steptape/player.h"
#include "storage/trace/reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/torch/commands.h"
#include "tools/torch/floor.h"
#include "tools/torch/inputs.h"

namespace steptape::tools {
namespace {

struct BenchOptions : PlayOptions {
  bool each = false;
};

/// What is done in one go, or all of the kind.
struct Row {
  std::string name;    ///< "aten::mm", "pass: aten::mul_ aten::addcmul_"
  std::string place;   ///< of the first op; empty where rows are added up
  std::string reason;  ///< why no kernel does it
  std::vector<std::uint64_t> ops;
  std::uint64_t stages = 1;
  double us = 0;
  double floor_us = 0;
};

struct Profile {
  std::string step;
  std::uint64_t call = 0;
  std::uint64_t replays = 0;
  double median_us = 0, lower_us = 0, upper_us = 0;
  double floor_us = 0;
  PlanStats plan;
  std::vector<Row> rows;
};

constexpr int kWarmUps = 40;

double us_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

const trace::Recording& recording_of(const trace::Trace& trace, const std::string& step,
                                     std::uint64_t call) {
  for (const trace::Step& each : trace.steps) {
    if (each.name != step) continue;
    const auto found = std::ranges::find(each.recordings, call, &trace::Recording::call);
    if (found != each.recordings.end()) return *found;
  }
  throw Error(ErrorCode::kInternal, "the trace does not hold what was replayed");
}

std::string name_of(const trace::Recording& recording, const std::vector<std::uint64_t>& ops) {
  std::vector<std::string> names;
  for (const std::uint64_t op : ops) {
    const std::string& name = recording.operator_of(recording.ops[op]).name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return ops.size() == 1 ? names.front() : fmt::format("pass: {}", fmt::join(names, " "));
}

std::vector<Row> rows_of(const trace::Recording& recording,
                         const std::vector<std::vector<double>>& us,
                         const std::vector<StageTime>& stages) {
  const std::vector<double> floors = tools::floors_us(recording);
  const diff::OpStream stream(recording);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Row row{.name = name_of(recording, stages[i].ops),
            .place = {},
            .reason = stages[i].reason,
            .ops = stages[i].ops,
            .us = quantile(us[i], 0.5)};
    for (const std::uint64_t op : row.ops) row.floor_us += floors[op];
    diff::NumericOp first;
    first.a = first.b = static_cast<trace::Index>(row.ops.front());
    row.place = diff::words_of_place(first, stream, stream);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Rows of one name added up, most time first.
std::vector<Row> added_up(const std::vector<Row>& rows) {
  std::map<std::string, Row> sums;
  for (const Row& row : rows) {
    const auto [found, is_new] = sums.try_emplace(row.name, row);
    Row& sum = found->second;
    sum.place.clear();
    if (is_new) continue;
    sum.us += row.us;
    sum.floor_us += row.floor_us;
    sum.stages += 1;
    sum.ops.insert(sum.ops.end(), row.ops.begin(), row.ops.end());
  }
  std::vector<Row> sorted;
  for (auto& [name, row] : sums) sorted.push_back(std::move(row));
  std::ranges::stable_sort(sorted, std::ranges::greater(), &Row::us);
  return sorted;
}

Profile profile(const BenchOptions& options) {
  Player player = load_player(options);
  PlayerStep step = choose_step(player, options.step);
  use_recorded_threads(step);
  Inputs inputs(options.inputs, step.inputs(), options.seed);
  Profile found;
  found.step = step.name();
  std::vector<double> whole;
  std::vector<std::vector<double>> us;
  std::vector<StageTime> stages;
  {
    const Progress progress("replaying");
    // caches, and memory of results
    for (int i = 0; i < kWarmUps; ++i) step.run(inputs.next());
    // replays are timed alone in turn with replays part by part, which take a little longer
    for (std::uint64_t i = 0; i < options.steps; ++i) {
      const std::vector<at::Tensor> next = inputs.next();
      const auto start = std::chrono::steady_clock::now();
      step.run(next);
      whole.push_back(us_since(start));
      step.run(inputs.next(), stages);
      us.resize(stages.size());
      for (std::size_t s = 0; s < stages.size(); ++s) {
        us[s].push_back(static_cast<double>(stages[s].ns) / 1e3);
      }
    }
    found.call = step.recorded_call();
    const trace::Trace trace = storage::read(options.file);
    found.rows = rows_of(recording_of(trace, found.step, found.call), us, stages);
  }
  found.replays = options.steps;
  found.median_us = quantile(whole, 0.5);
  found.lower_us = quantile(whole, 0.25);
  found.upper_us = quantile(whole, 0.75);
  for (const Row& row : found.rows) found.floor_us += row.floor_us;
  found.plan = step.variants().front();
  if (!options.each) found.rows = added_up(found.rows);
  return found;
}

std::string line_of(const Row& row, double whole_us) {
  const double share = whole_us > 0 ? 100 * row.us / whole_us : 0;
  // of less than this, the clock alone is a multiple
  constexpr double kLeastFloor = 0.05;
  const std::string over =
      row.floor_us >= kLeastFloor ? fmt::format("{:.1f}×", row.us / row.floor_us) : "";
  std::string line = fmt::format("{:>10.2f} {:>5.1f} % {:>10.2f} {:>7} {:>6}  {}", row.us, share,
                                 row.floor_us, over, row.ops.size(), shown(row.name));
  if (!row.place.empty()) line += "  at " + shown(row.place);
  if (!row.reason.empty()) line += "  (no kernel)";
  return line + "\n";
}

void print_text(const BenchOptions& options, const Profile& profile) {
  put(toned(
      Tone::kHeading,
      fmt::format("{}: step \"{}\", {}: median {:.1f} µs, middle half {:.1f} to {:.1f}\n",
                  shown(options.file), shown(profile.step), count_of(profile.replays, "replay"),
                  profile.median_us, profile.lower_us, profile.upper_us)));
  put(fmt::format("{} ops in {}, {} by kernels, in {} passes; floor {:.1f} µs, {:.1f}×\n",
                  profile.plan.ops, count_of(profile.plan.calls, "call"), profile.plan.prepared,
                  profile.plan.stages, profile.floor_us,
                  profile.floor_us > 0 ? profile.median_us / profile.floor_us : 0));
  double whole = 0;
  for (const Row& row : profile.rows) whole += row.us;
  put("\n        µs   share   floor µs       ×  calls\n");
  for (const Row& row : profile.rows) put(line_of(row, whole));
  if (profile.plan.lacks_blas) put("\nno sgemm of LibTorch's was found in the process\n");
  if (!profile.plan.unprepared.empty()) put("\nno kernel, and so by LibTorch's dispatcher:\n");
  for (const CountedReason& each : profile.plan.unprepared) {
    put(fmt::format("{:>6}  {}\n", each.calls, shown(each.reason)));
  }
}

void print_json(const BenchOptions& options, const Profile& profile) {
  const auto row_json = [](const Row& row) {
    return Json{{"name", row.name},     {"place", row.place},      {"kernel", row.reason.empty()},
                {"reason", row.reason}, {"stages", row.stages},    {"ops", row.ops},
                {"us", row.us},         {"floor_us", row.floor_us}};
  };
  put(json_text({{"file", options.file},
                 {"step", profile.step},
                 {"call", profile.call},
                 {"replays", profile.replays},
                 {"median_us", profile.median_us},
                 {"lower_quartile_us", profile.lower_us},
                 {"upper_quartile_us", profile.upper_us},
                 {"floor_us", profile.floor_us},
                 {"ops", profile.plan.ops},
                 {"calls", profile.plan.calls},
                 {"prepared", profile.plan.prepared},
                 {"stages", profile.plan.stages},
                 {"rows", each(profile.rows, row_json)}}));
}

int run(const BenchOptions& options) {
  const Profile found = profile(options);
  options.json ? print_json(options, found) : print_text(options, found);
  return flush_output() ? kGood : kTrouble;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Times a replay op by op, beside what each could not do without");
  options->steps = 200;
  add_options(*command, *options, "How many replays to time, and as many part by part");
  command->add_flag("--each", options->each,
                    "A line for each call or pass, in the order of the run, with its place");
  command->add_flag("--any-environment", options->any_environment,
                    "Accept a trace recorded with another torch, CPU or thread count");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "The floor of an op is what its matrix product, convolution or recurrent layer takes when it "
      "is called\nbare with warm caches, else its bytes at the bandwidth of a cache. Calls that "
      "are "
      "done in one pass\ntouch memory less often than their ops by themselves.\n\n"
      "Exit status: 0 timed, 2 trouble.\n\nExamples:\n"
      "  steptape bench run.tape\n"
      "  steptape bench run.tape --step train --each\n"
      "  steptape bench run.tape --json | jq '.rows[] | select(.kernel | not)'");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
