// Teaches a GRU to foretell the next character of a text, eagerly and then through Steptape from
// the same seed, and compares the two bit for bit. Half-way it saves the trace with its state:
// char_gru_continue trains the second half again without the model code.
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "../comparison.h"
#include "../program.h"
#include "../training_state.h"
#include "model.h"
#include "schedule.h"
#include "steptape/steptape.h"
#include "text.h"

namespace char_gru {
namespace {

using examples::Run;
using torch::optim::AdamParamState;
/// Loss, and the hidden state after the batch.
using Result = std::pair<at::Tensor, at::Tensor>;
using StepFunction = std::function<Result(at::Tensor, at::Tensor, at::Tensor)>;

/// A model and its optimizer, the same in every Learner.
struct Learner {
  explicit Learner(const Text& text)
      : model((at::manual_seed(kSeed), Net(static_cast<std::int64_t>(text.alphabet.size())))) {}

  Net model;
  torch::optim::Adam optimizer{model->parameters(), torch::optim::AdamOptions(4e-3)};

  Result train(const at::Tensor& characters, const at::Tensor& next, const at::Tensor& before) {
    optimizer.zero_grad();
    const auto [logits, hidden] = model->forward(characters, before);
    auto loss = at::cross_entropy_loss(logits.flatten(0, 1), next.flatten());
    loss.backward();
    torch::nn::utils::clip_grad_value_(model->parameters(), 0.02);
    optimizer.step();
    return {loss, hidden.detach()};
  }

  void add_state(Run& run, const at::Tensor& hidden) const {
    examples::add_tensors<AdamParamState>(run.outcome, *model, optimizer);
    run.outcome.add_tensor("hidden", hidden);
  }
};

/// Trains steps `first` to `last`, `hidden` being carried from each to the next.
void train(Run& run, at::Tensor& hidden, const Batches& batches, std::int64_t first,
           std::int64_t last, const StepFunction& step) {
  for (std::int64_t i = first; i < last; ++i) {
    const auto batch = batches.at(i);
    if (batch.starts) hidden = NetImpl::silence(kStreams);
    auto [loss, behind] = run.timed([&] { return step(batch.characters, batch.next, hidden); });
    run.outcome.add_loss(loss);
    hidden = std::move(behind);
  }
}

void train_eagerly(Run& run, const Text& text, const Batches& batches) {
  Learner learner(text);
  at::Tensor hidden;
  train(run, hidden, batches, 0, kSteps,
        [&](const at::Tensor& characters, const at::Tensor& next, const at::Tensor& before) {
          return learner.train(characters, next, before);
        });
  learner.add_state(run, hidden);
  examples::add_host_state<AdamParamState>(run.outcome, *learner.model, learner.optimizer);
}

/// Prints the table and what came of it: whether the steps gave the eager bits, by replays, and
/// taught the network something.
bool report(const Run& eager, const Run& replayed, const steptape::Stats& stats,
            const std::string& explanation) {
  constexpr std::size_t kLast = 100;
  const double eager_loss = examples::mean_of_last(kLast, eager.outcome);
  const double loss = examples::mean_of_last(kLast, replayed.outcome);
  examples::print_table(eager, replayed, stats);
  examples::print_row("loss, mean of the last 100", examples::text_of(eager_loss, 3),
                      examples::text_of(loss, 3));
  std::printf("\n%s\n", explanation.c_str());
  const bool identical = examples::report_identity("eager", eager.outcome, replayed.outcome);
  const bool replays = examples::report_replays(stats);
  if (eager_loss > 2) std::printf("the loss is over 2\n");
  return identical && replays && eager_loss <= 2;
}

bool run(const std::filesystem::path& trace, const std::filesystem::path& file) {
  if (trace.has_parent_path()) std::filesystem::create_directories(trace.parent_path());
  at::set_num_threads(kThreads);
  const auto text = read(file);
  const Batches batches(text, kStreams, kLength);
  std::printf("%lld characters, %zu of them different; %lld steps of %lld times %lld\n",
              static_cast<long long>(text.codes.numel()), text.alphabet.size(),
              static_cast<long long>(kSteps), static_cast<long long>(kStreams),
              static_cast<long long>(kLength));
  Run eager;
  train_eagerly(eager, text, batches);

  Learner learner(text);
  at::Tensor hidden;
  at::Tensor saved_hidden = NetImpl::silence(kStreams);
  steptape::Session session;
  session.track("model", learner.model).track("optimizer", learner.optimizer);
  session.track("hidden", saved_hidden);
  auto step = session.wrap("train", [&](at::Tensor characters, at::Tensor next, at::Tensor before) {
    return learner.train(characters, next, before);
  });
  Run replayed;
  replayed.counts = examples::was_replayed(step);
  train(replayed, hidden, batches, 0, kSavedAt, step);
  saved_hidden.copy_(hidden);
  session.save(trace.string(), steptape::Session::State::kWith);
  train(replayed, hidden, batches, kSavedAt, kSteps, step);
  learner.add_state(replayed, hidden);
  digits::write(examples::since(kSavedAt, replayed.outcome), digits::beside(trace));
  examples::add_host_state<AdamParamState>(replayed.outcome, *learner.model, learner.optimizer);

  const bool good = report(eager, replayed, step.stats(), session.explain());
  std::printf("trace after %lld steps: %s (%ju bytes)\n", static_cast<long long>(kSavedAt),
              trace.c_str(), static_cast<std::uintmax_t>(std::filesystem::file_size(trace)));
  return good;
}

}  // namespace
}  // namespace char_gru

int main(int argc, char** argv) {
  return examples::run_program(argc, argv, "char_gru", CHAR_GRU_TEXT, char_gru::run);
}
