// Trains on from the trace that char_gru_train saved half-way, without the model's code, and
// compares what comes out with what came out there.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cstdio>
#include <filesystem>

#include "../comparison.h"
#include "../program.h"
#include "schedule.h"
#include "steptape/player.h"
#include "text.h"

namespace char_gru {
namespace {

bool run(const std::filesystem::path& trace, const std::filesystem::path& file) {
  at::set_num_threads(kThreads);
  const Batches batches(read(file), kStreams, kLength);
  const auto expected = digits::read_outcome(digits::beside(trace));
  auto player = steptape::load(trace.string());
  auto train = player.step("train");
  std::printf("%s holds %zu tensors and %zu steps\n", trace.c_str(), player.state().size(),
              player.steps().size());

  digits::Outcome found;
  const auto saved_hidden = player.tensor("hidden");
  auto hidden = saved_hidden.clone();
  for (std::int64_t i = kSavedAt; i < kSteps; ++i) {
    const auto batch = batches.at(i);
    if (batch.starts) hidden = at::zeros_like(hidden);
    const auto results = train.run({batch.characters, batch.next, hidden});
    found.add_loss(results.at(0));
    hidden = results.at(1);
  }
  saved_hidden.copy_(hidden);
  for (const auto& [path, digest] : expected.digests) found.add_tensor(path, player.tensor(path));

  std::printf("%lld more steps, loss %.3f\n", static_cast<long long>(kSteps - kSavedAt),
              examples::mean_of_last(100, found));
  return examples::report_identity("the first process", expected, found);
}

}  // namespace
}  // namespace char_gru

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "char_gru", CHAR_GRU_TEXT, char_gru::run);
}
