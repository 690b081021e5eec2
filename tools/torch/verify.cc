#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "diff/numerics/numeric_words.h"
#include "diff/op_stream.h"
#include "replayer/player/environment.h"
#include "replayer/player/repetition.h"
#include "steptape/error.h"
#include "storage/trace/reader.h"
#include "tools/cli/commands.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/torch/commands.h"

namespace steptape::tools {
namespace {

struct VerifyOptions {
  std::string file, step;
  std::uint64_t call = 0;
  int threads = 0;
  bool json = false;
};

/// What came of one recording.
struct Verified {
  std::string step;
  std::uint64_t call = 0;
  std::vector<std::string> lacks;  ///< why it was not done again
  std::size_t ops = 0;
  std::size_t compared = 0;
  trace::Index first = trace::kNone;  ///< the op that left something else
  std::string place;                  ///< of that op
  std::string recorded, here;         ///< what it left then and now
  std::string failure;

  bool is_equal() const { return lacks.empty() && first == trace::kNone && failure.empty(); }
  bool differs() const { return lacks.empty() && !is_equal(); }
};

int threads_of(const trace::Recording& recording) {
  const auto found = std::ranges::find(recording.ambient, "threads", &trace::Fact::name);
  if (found == recording.ambient.end()) return 0;
  return std::atoi(found->value.c_str());
}

void repeat(const trace::Recording& recording, int threads, Verified& verified) {
  if (threads == 0) threads = threads_of(recording);
  if (threads > 0) at::set_num_threads(threads);
  const replayer::Repetition repetition = replayer::repeat(recording);
  verified.compared = repetition.compared(recording);
  verified.failure = repetition.failure;
  verified.first = repetition.first_difference(recording);
  if (verified.first == trace::kNone) return;
  const diff::OpStream stream(recording);
  diff::NumericOp op;
  op.a = op.b = verified.first;
  verified.place = diff::words_of_place(op, stream, stream);
  verified.recorded = text_of(recording.op_digests[verified.first]);
  verified.here = text_of(*repetition.digests[verified.first]);
}

Verified verify(const trace::Step& step, const trace::Recording& recording, int threads) {
  Verified verified;
  verified.step = step.name;
  verified.call = recording.call;
  verified.ops = recording.ops.size();
  try {
    verified.lacks = replayer::lacks_of(recording);
    if (verified.lacks.empty()) repeat(recording, threads, verified);
  } catch (const std::exception& error) {
    verified.lacks.emplace_back(error.what());
  }
  return verified;
}

std::vector<Verified> verify(const trace::Trace& trace, const VerifyOptions& options) {
  const Progress progress("doing recorded calls again");
  std::vector<Verified> all;
  for (const trace::Step& step : trace.steps) {
    if (!options.step.empty() && step.name != options.step) continue;
    for (const trace::Recording& recording : step.recordings) {
      if (options.call != 0 && recording.call != options.call) continue;
      all.push_back(verify(step, recording, options.threads));
    }
  }
  if (all.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} holds no such recording; `steptape info` lists them", options.file));
  }
  return all;
}

std::string words_of(const Verified& verified) {
  if (!verified.lacks.empty()) {
    return fmt::format("not done again: {}", fmt::join(verified.lacks, "; "));
  }
  const std::string compared =
      fmt::format("{} of {} ops compared", verified.compared, verified.ops);
  if (verified.first != trace::kNone) {
    return fmt::format("differs first at {}: recorded {}, here {}; {}", verified.place,
                       verified.recorded, verified.here, compared);
  }
  if (!verified.failure.empty()) {
    return fmt::format("ended early: {}; {}", verified.failure, compared);
  }
  return fmt::format("equal, {}", compared);
}

std::string heading_of(const std::vector<Verified>& all) {
  const auto differing = std::ranges::count_if(all, &Verified::differs);
  const auto equal = std::ranges::count_if(all, &Verified::is_equal);
  if (differing == 0 && equal == 0) return "no call could be done again";
  const std::string done = count_of(static_cast<std::uint64_t>(differing + equal), "call");
  return differing == 0 ? fmt::format("equal: {} done again", done)
                        : fmt::format("differ: {} of {} done again", differing, done);
}

void print_text(const std::vector<Verified>& all, const std::vector<std::string>& environment) {
  const bool is_good = std::ranges::any_of(all, &Verified::is_equal) &&
                       std::ranges::none_of(all, &Verified::differs);
  put(toned(is_good ? Tone::kGood : Tone::kBad, heading_of(all)) + "\n");
  for (const std::string& difference : environment) put("environment  " + shown(difference) + "\n");
  for (const Verified& verified : all) {
    put(fmt::format("{} call {}: {}\n", shown(verified.step), verified.call,
                    shown(words_of(verified))));
  }
}

void print_json(const std::vector<Verified>& all, const std::vector<std::string>& environment) {
  const auto call_json = [](const Verified& verified) {
    Json call = {{"step", verified.step},
                 {"call", verified.call},
                 {"done_again", verified.lacks.empty()},
                 {"equal", verified.is_equal()},
                 {"lacks", verified.lacks},
                 {"ops", verified.ops},
                 {"compared", verified.compared},
                 {"failure", verified.failure},
                 {"first", nullptr}};
    if (verified.first != trace::kNone) {
      call["first"] = {{"op", verified.first},
                       {"place", verified.place},
                       {"recorded", verified.recorded},
                       {"here", verified.here}};
    }
    return call;
  };
  put(json_text({{"verdict", heading_of(all)},
                 {"environment", environment},
                 {"calls", each(all, call_json)}}));
}

int run(const VerifyOptions& options) {
  const trace::Trace trace = storage::read(options.file);
  const std::vector<Verified> all = verify(trace, options);
  const auto environment = replayer::environment_differences(trace.environment);
  options.json ? print_json(all, environment) : print_text(all, environment);
  if (!flush_output()) return kTrouble;
  if (std::ranges::any_of(all, &Verified::differs)) return kDiffers;
  return std::ranges::any_of(all, &Verified::is_equal) ? kGood : kTrouble;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify", "Does recorded calls again, and compares the bits that each op leaves");
  command
      ->add_option("file", options->file, "The trace; its recordings hold what their calls found")
      ->required();
  command->add_option("--step", options->step, "Only this step");
  command->add_option("--call", options->call, "Only this call of a step, counted from 1")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--threads", options->threads,
                   "So many threads in place of as many as the recording had")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Recordings hold what they need with Options::record = {.at = {...}, .state = true}, in "
      "Python\nsteptape.wrap(..., record={\"at\": [...], \"state\": True}).\n\n"
      "Exit status: 0 all that could be done again left the same, 1 an op left other bits, 2 "
      "trouble, or\nnothing could be done again.\n\nExamples:\n"
      "  steptape verify run.tape\n"
      "  steptape verify run.tape --step train --call 50 --threads 1 --json");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace steptape::tools
