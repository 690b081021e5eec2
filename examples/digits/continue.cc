// Trains on from a trace that digits_train saved, without the model's code, and compares what comes
// out with what came out there.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstdio>
#include <exception>
#include <filesystem>

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
  const auto mismatch = difference(expected, found);
  std::printf("bit-identical to the first process: %s (%zu losses, %zu tensors)\n",
              mismatch.empty() ? "yes" : "no", found.losses.size(), found.digests.size());
  if (!mismatch.empty()) std::printf("  %s\n", mismatch.c_str());
  return mismatch.empty();
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) try {
  if (argc > 3 || (argc > 1 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: digits_continue [TRACE=digits.tape [DIGITS.csv]]\n");
    return 2;
  }
  return digits::run(argc > 1 ? argv[1] : "digits.tape", argc > 2 ? argv[2] : DIGITS_CSV) ? 0 : 1;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "digits_continue: %s\n", problem.what());
  return 2;
}
