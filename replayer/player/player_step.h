#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "replayer/player/counters.h"
#include "replayer/player/player_state.h"
#include "replayer/player/player_variant.h"
#include "steptape/player.h"

namespace steptape {

/// The variants of a step over the memory of a player.
struct PlayerStep::Impl {
  std::string name;
  std::vector<std::unique_ptr<replayer::PlayerVariant>> variants;
  /// Steps of optimizers that run after it, by path.
  std::map<std::string, std::shared_ptr<Impl>> updates;
  replayer::PlayerState& state;
  std::shared_ptr<const replayer::Events> events;
  std::shared_ptr<replayer::StepCounters> counters;
  std::uint64_t& runs;
  /// Called when a run that wrote state has ended, updates after it included.
  std::function<void()> wrote_state;
  std::vector<double> numbers;                      ///< of the last run
  const replayer::PlayerVariant* newest = nullptr;  ///< that of the last run
  Verdict last_verdict;
  std::vector<replayer::PlayerVariant*> holding;  ///< while a call lasts
  /// Of two variants whether no call can be one that both hold for, as far as it was asked.
  std::map<std::pair<const replayer::PlayerVariant*, const replayer::PlayerVariant*>, bool> exclude;

  Impl(std::string step, replayer::PlayerState& of, std::shared_ptr<const replayer::Events> tells,
       std::shared_ptr<replayer::StepCounters> counts)
      : name(std::move(step)),
        state(of),
        events(std::move(tells)),
        counters(std::move(counts)),
        runs(of.runs_of(name)) {}

  /// Finds the variants that hold for these inputs, `holding`: one, or several of which a run finds
  /// out by a value that it reads whether it is its turn. None, and why.
  Verdict find(std::span<const at::Tensor> inputs);
  /// Lets go of the caller's tensors, which `find` has given the variants.
  void forget_arguments();
  /// Finds the variant, lets `run` do it, and counts what comes of it; then the same of updates.
  /// What `prepare` throws was the caller's mistake, and is not counted.
  template <typename Prepare, typename Run>
  void run(std::span<const at::Tensor> inputs, Prepare prepare, Run run);
  template <typename Prepare, typename Run>
  const replayer::PlayerVariant& run_alone(std::span<const at::Tensor> inputs, Prepare prepare,
                                           Run run);
  /// Counts it and throws.
  [[noreturn]] void refuse(const Verdict& verdict, double us);
  bool writes_state() const;
};

}  // namespace steptape
