#include "steptape/player.h"

#include <algorithm>
#include <map>

#include "replayer/analysis/refusals.h"
#include "replayer/cpu/tensor_on.h"
#include "replayer/optimizers/optimizers.h"
#include "replayer/player/environment.h"
#include "replayer/player/player_state.h"
#include "replayer/player/player_variant.h"
#include "storage/reader.h"
#include "storage/writer.h"

namespace steptape {

struct PlayerStep::Impl {
  std::string name;
  std::vector<std::unique_ptr<replayer::PlayerVariant>> variants;
  std::vector<double> numbers;  ///< of the last run
  std::uint64_t recorded_call = 0;
  /// Steps of optimizers that run behind it, by path.
  std::map<std::string, std::shared_ptr<Impl>> updates;
};

struct Player::Impl {
  trace::Trace trace;
  replayer::PlayerState state;
  std::vector<std::shared_ptr<PlayerStep::Impl>> steps;

  explicit Impl(trace::Trace loaded) : trace(std::move(loaded)), state(trace.state) {}
};

namespace {

TensorSpec spec_of(const trace::Recording& recording, trace::TensorId id, std::string path) {
  TensorSpec spec;
  spec.path = std::move(path);
  if (id == trace::kNoTensor) return spec;
  spec.dtype = name_of(recording.tensors[id].dtype);
  spec.sizes = recording.tensors[id].sizes;
  return spec;
}

std::string join(const std::vector<std::string>& items, const char* separator) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : separator) + item;
  return text;
}

/// The one variant that holds for these inputs. Two that hold were told apart by something that the
/// player does not know, such as a string: neither is run.
std::pair<Verdict, replayer::PlayerVariant*> find_variant(const PlayerStep::Impl& step,
                                                          const std::vector<at::Tensor>& inputs) {
  Verdict newest;
  replayer::PlayerVariant* found = nullptr;
  for (const auto& variant : step.variants) {
    Verdict verdict = variant->check(variant->arguments_of(inputs));
    if (!verdict) {
      newest = std::move(verdict);
    } else if (found == nullptr) {
      found = variant.get();
    } else {
      return {{"variant", "one that holds",
               "several, told apart by a string or another fact that "
               "the player does not hold"},
              nullptr};
    }
  }
  if (found == nullptr) return {newest, nullptr};
  return {{}, found};
}

/// Finds the steps of optimizers that each step is followed by; what is missing goes to `problems`.
void find_updates(const std::vector<std::shared_ptr<PlayerStep::Impl>>& steps,
                  std::vector<std::string>& problems) {
  for (const auto& step : steps) {
    for (const auto& variant : step->variants) {
      for (const std::string& path : variant->recording().updates) {
        const auto found = std::ranges::find(steps, replayer::update_step_of(path),
                                             [](const auto& other) { return other->name; });
        if (found != steps.end()) {
          step->updates.emplace(path, *found);
        } else {
          problems.push_back(
              "step \"" + step->name + "\" is followed by a step of " +
              (path.empty() ? "an optimizer that nobody tracked" : "`" + path + "`") +
              ", which the trace does not hold");
        }
      }
    }
  }
}

}  // namespace

std::vector<at::Tensor> PlayerStep::run(const std::vector<at::Tensor>& inputs) {
  return run(inputs, nullptr);
}

std::vector<at::Tensor> PlayerStep::run(const std::vector<at::Tensor>& inputs,
                                        std::vector<StageTime>& times) {
  return run(inputs, &times);
}

std::uint64_t PlayerStep::recorded_call() const { return impl_->recorded_call; }

std::vector<at::Tensor> PlayerStep::run(const std::vector<at::Tensor>& inputs,
                                        std::vector<StageTime>* times) {
  const auto [verdict, variant] = find_variant(*impl_, inputs);
  if (variant == nullptr) {
    throw Error(ErrorCode::kFailedPrecondition,
                "step \"" + impl_->name + "\" was not run: " + verdict.text() +
                    (impl_->variants.size() > 1
                         ? " (the last of " + std::to_string(impl_->variants.size()) + " variants)"
                         : ""));
  }
  if (times != nullptr) variant->log_times(*times);
  replayer::Results results = variant->run(variant->arguments_of(inputs));
  impl_->recorded_call = variant->recording().call;
  impl_->numbers = std::move(results.numbers);
  for (const std::string& path : variant->recording().updates) {
    PlayerStep(impl_->updates.at(path)).run({});
  }
  return std::move(results.tensors);
}

Verdict PlayerStep::check(const std::vector<at::Tensor>& inputs) const {
  return find_variant(*impl_, inputs).first;
}

const std::vector<double>& PlayerStep::numbers() const { return impl_->numbers; }

const std::string& PlayerStep::name() const { return impl_->name; }

std::vector<TensorSpec> PlayerStep::inputs() const {
  const trace::Recording& recording = impl_->variants.front()->recording();
  std::vector<TensorSpec> specs;
  for (const trace::Input& input : recording.inputs) {
    const auto* tensor = std::get_if<trace::TensorRef>(&input.value.data);
    if (tensor == nullptr) continue;
    TensorSpec spec = spec_of(recording, tensor->id, input.path);
    if (input.range) std::tie(spec.low, spec.high) = *input.range;
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<TensorSpec> PlayerStep::results() const {
  const trace::Recording& recording = impl_->variants.front()->recording();
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < recording.results.size() - recording.observed; ++i) {
    specs.push_back(spec_of(recording, recording.results[i], "results[" + std::to_string(i) + "]"));
  }
  return specs;
}

std::vector<PlanStats> PlayerStep::variants() const {
  std::vector<PlanStats> stats;
  for (const auto& variant : impl_->variants) stats.push_back(variant->stats());
  return stats;
}

std::string PlayerStep::ambient(const std::string& name) const {
  for (const trace::Fact& fact : impl_->variants.front()->recording().ambient) {
    if (fact.name == name) return fact.value;
  }
  return "";
}

std::string PlayerStep::structure() const {
  for (const trace::Effect& effect : impl_->variants.front()->recording().effects) {
    if (effect.name == "results") return effect.value;
  }
  return "";
}

at::Tensor PlayerStep::single(std::vector<at::Tensor> results) {
  if (results.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument, "the step has " + std::to_string(results.size()) +
                                                 " results; call run() to get them all");
  }
  return std::move(results.front());
}

Player::Player(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Player::Player(Player&&) noexcept = default;
Player& Player::operator=(Player&&) noexcept = default;
Player::~Player() = default;

std::vector<std::string> Player::steps() const {
  std::vector<std::string> names;
  for (const auto& step : impl_->steps) names.push_back(step->name);
  return names;
}

PlayerStep Player::step(const std::string& name) {
  for (const auto& step : impl_->steps) {
    if (step->name == name) return PlayerStep(step);
  }
  throw Error(ErrorCode::kInvalidArgument,
              "no step \"" + name + "\" can be replayed; there are: " + join(steps(), ", "));
}

std::vector<TensorSpec> Player::state() const {
  std::vector<TensorSpec> specs;
  std::vector<std::string> seen;
  for (const auto& step : impl_->steps) {
    const trace::Recording& recording = step->variants.front()->recording();
    for (const trace::Tracked& tracked : recording.tracked) {
      const bool listed = std::find(seen.begin(), seen.end(), tracked.path) != seen.end();
      if (listed || tracked.role == trace::Role::kGradient) continue;
      seen.push_back(tracked.path);
      specs.push_back(spec_of(recording, tracked.tensor, tracked.path));
    }
  }
  return specs;
}

at::Tensor Player::tensor(const std::string& path) const {
  for (const auto& step : impl_->steps) {
    const trace::Recording& recording = step->variants.front()->recording();
    for (const trace::Tracked& tracked : recording.tracked) {
      if (tracked.path != path || tracked.tensor == trace::kNoTensor) continue;
      const trace::Tensor& geometry = recording.tensors[tracked.tensor];
      const std::string& buffer = recording.buffers[geometry.buffer].path;
      if (impl_->state.holds(buffer)) {
        return replayer::cpu::tensor_on(impl_->state.storage(buffer), geometry);
      }
    }
  }
  throw Error(ErrorCode::kInvalidArgument, "the trace holds no tensor \"" + path + "\"");
}

std::vector<std::string> Player::scalars() const { return impl_->state.numbers(); }

double Player::scalar(const std::string& path) const {
  if (const trace::Value* number = impl_->state.number(path)) return trace::number_of(*number);
  throw Error(ErrorCode::kInvalidArgument, "the trace holds no number \"" + path + "\"");
}

void Player::set(const std::string& path, double value) {
  if (impl_->state.set_number(path, value)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the trace holds no number \"" + path + "\"; there are: " + join(scalars(), ", "));
}

void Player::save(const std::string& path) const {
  trace::Trace trace = impl_->trace;
  trace.state = impl_->state.save();
  storage::write(trace, path);
}

Player load(const std::string& path, const LoadOptions& options) {
  auto impl = std::make_unique<Player::Impl>(storage::read(path));
  std::vector<std::string> problems;
  if (options.environment == Environment::kExact)
    problems = replayer::environment_differences(impl->trace.environment);
  for (const trace::Step& step : impl->trace.steps) {
    auto loaded = std::make_shared<PlayerStep::Impl>();
    loaded->name = step.name;
    for (const trace::Recording& recording : step.recordings) {
      if (recording.standing != trace::Standing::kTrusted) continue;
      const std::vector<Refusal> refusals = replayer::refusals_of(recording);
      for (const Refusal& refusal : refusals)
        problems.push_back("step \"" + step.name + "\": " + refusal.text());
      if (!refusals.empty() || !problems.empty()) continue;
      try {
        loaded->variants.push_back(std::make_unique<replayer::PlayerVariant>(
            std::make_shared<const trace::Recording>(recording), step.name, impl->state));
      } catch (const Error& error) {
        problems.push_back("step \"" + step.name + "\": " + error.what());
      }
    }
    const auto differs = [&](const auto& variant) {
      return variant->recording().modules != loaded->variants.front()->recording().modules;
    };
    const bool checks_training = std::ranges::any_of(loaded->variants, differs);
    for (const auto& variant : loaded->variants) variant->join(checks_training);
    if (!loaded->variants.empty()) impl->steps.push_back(std::move(loaded));
  }
  find_updates(impl->steps, problems);
  if (problems.empty() && impl->steps.empty()) {
    problems.push_back("no step in it was verified while recording: run more steps before saving");
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kUnsupported,
                path + " cannot be replayed here:\n  " + join(problems, "\n  "));
  }
  return Player(std::move(impl));
}

}  // namespace steptape
