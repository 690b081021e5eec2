// Trains on from the trace that digits_cnn_train saved half-way, without the model's code but with
// its schedule, and compares what comes out with what came out there.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstdio>
#include <filesystem>

#include "../comparison.h"
#include "../digits/dataset.h"
#include "../program.h"
#include "schedule.h"
#include "steptape/player.h"

namespace digits_cnn {
namespace {

bool run(const std::filesystem::path& trace, const std::filesystem::path& csv) {
  at::set_num_threads(kThreads);
  const auto data = digits::split(digits::read(csv));
  const auto expected = digits::read_outcome(digits::beside(trace));
  auto player = steptape::load(trace.string());
  auto train = player.step("train");
  auto evaluate = player.step("eval");
  std::printf("%s holds %zu tensors and %zu steps\n", trace.c_str(), player.state().size(),
              player.steps().size());

  digits::Outcome found;
  digits::Batches batches(data.train, kBatchSize, kSeed);
  for (std::int64_t i = kSavedAt; i < kSteps; ++i) {
    player.set("optimizer.param_groups[0].lr", learning_rate(i));
    const auto batch = batches.at(i);
    found.add_loss(train(batch.pixels, batch.labels));
  }
  for (const auto& [path, digest] : expected.digests) found.add_tensor(path, player.tensor(path));

  const auto right = evaluate(data.test.pixels, data.test.labels).item<std::int64_t>();
  std::printf("%lld more steps, test accuracy %.1f%%\n", static_cast<long long>(kSteps - kSavedAt),
              100.0 * static_cast<double>(right) / static_cast<double>(data.test.count()));
  return examples::report_identity("the first process", expected, found);
}

}  // namespace
}  // namespace digits_cnn

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "digits_cnn", DIGITS_CSV, digits_cnn::run);
}
