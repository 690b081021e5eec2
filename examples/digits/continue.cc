// Trains on from a trace that digits_train saved, without the model's code, and
// compares what comes out with what came out there.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstdio>
#include <filesystem>

#include "../comparison.h"
#include "../program.h"
#include "dataset.h"
#include "outcome.h"
#include "schedule.h"
#include "steptape/player.h"

namespace digits {
namespace {

bool run(const std::filesystem::path& trace, const std::filesystem::path& csv) {
  at::set_num_threads(kThreads);
  const auto data = split(read(csv));
  const auto expected = read_outcome(beside(trace));
  auto player = steptape::load(trace.string());
  auto train = player.step("train");
  auto evaluate = player.step("eval");
  std::printf("%s holds %zu tensors and %zu steps\n", trace.c_str(), player.state().size(),
              player.steps().size());

  Outcome found;
  Batches batches(data.train, kBatchSize, kSeed);
  for (std::int64_t i = kSteps; i < kSteps + kContinuedSteps; ++i) {
    const auto batch = batches.at(i);
    found.add_loss(train(batch.pixels, batch.labels));
  }
  for (const auto& [path, digest] : expected.digests) found.add_tensor(path, player.tensor(path));

  const auto right = evaluate(data.test.pixels, data.test.labels).item<std::int64_t>();
  std::printf("%lld more steps, test accuracy %.1f%%\n", static_cast<long long>(kContinuedSteps),
              100.0 * static_cast<double>(right) / static_cast<double>(data.test.count()));
  return examples::report_identity("the first process", expected, found);
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "digits", DIGITS_CSV, digits::run);
}
