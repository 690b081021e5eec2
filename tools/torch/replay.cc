#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "live/tensors.h"
#include "steptape/player.h"
#include "tools/cli/commands.h"
#include "tools/cli/output.h"
#include "tools/torch/commands.h"
#include "tools/torch/floor.h"
#include "tools/torch/inputs.h"

namespace steptape::tools {
namespace {

struct ReplayOptions : PlayOptions {
  std::string save;
};

struct Run {
  std::string step;
  std::vector<double> step_us;
  std::vector<std::string> digests;  ///< of the last step's results
  std::vector<double> values;        ///< of one-element results of the last step
  PlanStats plan;
};

Run run(Player& player, const ReplayOptions& options) {
  Run result;
  PlayerStep step = choose_step(player, options.step);
  result.step = step.name();
  use_recorded_threads(step);
  Inputs inputs(options.inputs, step.inputs(), options.seed);
  std::vector<at::Tensor> results;
  for (std::uint64_t i = 0; i < options.steps; ++i) {
    const std::vector<at::Tensor> next = inputs.next();
    const auto start = std::chrono::steady_clock::now();
    results = step.run(next);
    const auto end = std::chrono::steady_clock::now();
    result.step_us.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  for (const at::Tensor& tensor : results) {
    result.digests.push_back(tensor.defined() ? text_of(live::digest_of(tensor)) : "undefined");
    if (tensor.defined() && tensor.numel() == 1) result.values.push_back(tensor.item().toDouble());
  }
  result.plan = step.variants().front();
  return result;
}

void print_json(const ReplayOptions& options, const Run& run) {
  const nlohmann::json json = {{"file", options.file},
                               {"step", run.step},
                               {"steps", run.step_us.size()},
                               {"median_us", quantile(run.step_us, 0.5)},
                               {"ops", run.plan.ops},
                               {"calls", run.plan.calls},
                               {"arena_bytes", run.plan.arena_bytes},
                               {"result_digests", run.digests},
                               {"result_values", run.values},
                               {"saved", options.save}};
  put(json.dump(2) + "\n");
}

void print_text(const ReplayOptions& options, const Run& run) {
  put(fmt::format("{}: step \"{}\" replayed {} times, median {:.1f} us\n", options.file, run.step,
                  run.step_us.size(), quantile(run.step_us, 0.5)));
  put(fmt::format("{} ops in {} calls, arena {} bytes\n", run.plan.ops, run.plan.calls,
                  run.plan.arena_bytes));
  for (std::size_t i = 0; i < run.digests.size(); ++i) {
    put(fmt::format("results[{}] of the last step: digest {}\n", i, run.digests[i]));
  }
  for (const double value : run.values) put(fmt::format("value of the last step: {:.9g}\n", value));
  if (!options.save.empty()) put(fmt::format("state saved to {}\n", options.save));
}

int replay(const ReplayOptions& options) {
  try {
    Player player = load_player(options);
    const Run done = run(player, options);
    if (!options.save.empty()) player.save(options.save);
    options.json ? print_json(options, done) : print_text(options, done);
    return kGood;
  } catch (const Error& error) {
    std::fprintf(stderr, "steptape replay: %s\n", error.what());
    return error.code() == ErrorCode::kFailedPrecondition ? kDiffers : kTrouble;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "steptape replay: an op threw: %s\n", error.what());
    return kTrouble;
  }
}

}  // namespace

void add_replay(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command =
      app.add_subcommand("replay", "Runs a step of a trace, without the model's code");
  add_options(*command, *options, "How many steps to run");
  command->add_option("--save", options->save, "Where to write the trace with its new state");
  command->add_flag(
      "--any-environment", options->any_environment,
      "Accept a trace recorded with another torch, CPU or thread count; bits may differ");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Exit status: 0 all steps ran, 1 a guard refused them, 2 trouble.\n\nExamples:\n"
      "  steptape replay digits.tape --step train --steps 100\n"
      "  steptape replay digits.tape --step train --inputs batch.pt --save next.tape --json");
  command->callback([options, &exit_code] { exit_code = replay(*options); });
}

}  // namespace steptape::tools
