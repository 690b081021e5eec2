#include "steptape/player.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "live/collectives.h"
#include "live/stopwatch.h"
#include "live/tensors.h"
#include "replayer/planner/analysis/refusals.h"
#include "replayer/planner/optimizers/optimizers.h"
#include "replayer/planner/plan_words.h"
#include "replayer/player/environment.h"
#include "replayer/player/player_state.h"
#include "replayer/player/player_step.h"
#include "replayer/player/publication.h"
#include "replayer/player/spec_words.h"
#include "replayer/player/weights.h"
#include "replayer/runtime/backends.h"
#include "replayer/runtime/tensor_on.h"
#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "trace/numbers.h"
#include "trace/refusals.h"
#include "trace/text/text.h"

namespace steptape {
namespace {

using Kind = PlayerEvent::Kind;
using Steps = std::vector<std::shared_ptr<PlayerStep::Impl>>;

/// What a player and its clones hold together.
struct Shared {
  std::string path;
  trace::Trace trace;
  std::vector<std::string> differences;  ///< of the environment, which were accepted
  std::shared_ptr<const replayer::Events> events;
  replayer::PlayerCounters counters;
  std::shared_ptr<replayer::Publication> publication;  ///< from the first clone on
};

/// Finds the steps of optimizers that each step is followed by; what is missing goes to `problems`.
void find_updates(const Steps& steps, std::vector<std::string>& problems) {
  for (const auto& step : steps) {
    for (const auto& variant : step->variants) {
      for (const std::string& path : variant->recording().updates) {
        const auto found = std::ranges::find(steps, replayer::update_step_of(path),
                                             [](const auto& other) { return other->name; });
        if (found != steps.end()) {
          step->updates.emplace(path, *found);
        } else {
          problems.push_back(fmt::format(
              "step \"{}\" is followed by a step of {}, which the trace does not hold", step->name,
              path.empty() ? "an optimizer that nobody tracked" : "`" + path + "`"));
        }
      }
    }
  }
}

void require_device(const trace::Device& device, const std::string& asked) {
  const std::string here = text_of(device);
  if (!asked.empty() && asked != here && asked + ":0" != here) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("no step of it runs on \"{}\": it was recorded on {}", asked, here));
  }
  if (device.kind == trace::DeviceKind::kCpu) return;
  if (const std::string why = replayer::why_no_backend(device.kind); !why.empty())
    throw Error(ErrorCode::kUnsupported, fmt::format("no backend for {}: {}", here, why));
  const c10::Device found = live::device_of(device);
  if (!at::hasCUDA() || found.index() >= at::detail::getCUDAHooks().deviceCount())
    throw Error(ErrorCode::kUnsupported, fmt::format("this process has no device {}", here));
  at::globalContext().lazyInitDevice(found.type());
}

/// All memory that steps find when they begin. Throws Error (unsupported) where the device of one
/// that can be replayed is not here, or is not `asked`.
replayer::PlayerState::Devices buffers_of(const trace::Trace& trace, const std::string& asked) {
  replayer::PlayerState::Devices buffers;
  for (const trace::Step& step : trace.steps) {
    for (const trace::Recording& recording : step.recordings) {
      const bool is_trusted = recording.status == trace::Status::kTrusted;
      if (is_trusted) require_device(replayer::device_of(recording), asked);
      for (const trace::Buffer& buffer : recording.buffers) {
        if (buffer.path.empty()) continue;
        if (is_trusted) {
          buffers.insert_or_assign(buffer.path, live::device_of(buffer.device));
        } else {
          buffers.emplace(buffer.path, c10::kCPU);
        }
      }
      for (const trace::HeldInput& place : recording.places) {
        if (place.input == trace::kNone) continue;
        const trace::BufferId buffer = trace::tensor_in(recording, place).buffer;
        buffers.insert_or_assign(place.path, live::device_of(recording.buffers[buffer].device));
      }
    }
  }
  return buffers;
}

/// The step's variants know each other from here on.
void join(PlayerStep::Impl& step) {
  const auto differs = [&](const auto& variant) {
    return variant->recording().modules != step.variants.front()->recording().modules;
  };
  const bool checks_training = std::ranges::any_of(step.variants, differs);
  const bool are_alike = std::ranges::all_of(step.variants, [&](const auto& variant) {
    return variant->structures() == step.variants.front()->structures();
  });
  for (const auto& variant : step.variants) variant->join(checks_training, are_alike);
}

std::shared_ptr<PlayerStep::Impl> make_step(const std::string& name, replayer::PlayerState& state,
                                            Shared& shared) {
  return std::make_shared<PlayerStep::Impl>(name, state, shared.events, shared.counters.step(name));
}

/// The steps that can be replayed; why others cannot goes to `problems`.
Steps plan_steps(Shared& shared, replayer::PlayerState& state, std::vector<std::string>& problems) {
  Steps steps;
  for (const trace::Step& step : shared.trace.steps) {
    auto loaded = make_step(step.name, state, shared);
    for (const trace::Recording& recording : step.recordings) {
      if (recording.status != trace::Status::kTrusted) continue;
      std::vector<Refusal> refusals = replayer::refusals_of(recording, replayer::why_no_backend);
      if (const auto ops = live::collectives_of(recording); !ops.empty()) {
        refusals.push_back(trace::refusal_at(recording, ops.front(), RefusalCode::kUnreplayableOp,
                                             "a player exchanges nothing with other processes"));
      }
      for (const Refusal& refusal : refusals)
        problems.push_back("step \"" + step.name + "\": " + refusal.text());
      if (!refusals.empty() || !problems.empty()) continue;
      try {
        loaded->variants.push_back(std::make_unique<replayer::PlayerVariant>(
            std::make_shared<const trace::Recording>(recording), step.name, state));
      } catch (const Error& error) {
        problems.push_back("step \"" + step.name + "\": " + error.what());
      }
    }
    if (loaded->variants.empty()) continue;
    try {
      join(*loaded);
      replayer::require_beginning(loaded->variants);
    } catch (const Error& error) {
      problems.push_back("step \"" + step.name + "\": " + error.what());
    }
    steps.push_back(std::move(loaded));
  }
  find_updates(steps, problems);
  return steps;
}

}  // namespace

struct Player::Impl {
  std::shared_ptr<Shared> shared;
  replayer::PlayerState state;
  Steps steps;
  std::vector<std::string> writing_steps;  ///< of a clone: those that it does not have
  std::vector<replayer::TrackedTensor> tracked;
  std::optional<replayer::Snapshots> snapshots;

  Impl(std::shared_ptr<Shared> loaded, const std::string& device)
      : shared(std::move(loaded)), state(shared->trace.state, buffers_of(shared->trace, device)) {}
  /// A clone.
  Impl(const Impl& other, std::shared_ptr<replayer::Publication> publication)
      : shared(other.shared),
        state(other.state, std::move(publication)),
        writing_steps(other.writing_steps),
        tracked(other.tracked) {
    for (const auto& step : other.steps) {
      if (step->writes_state()) {
        writing_steps.push_back(step->name);
        continue;
      }
      auto own = make_step(step->name, state, *shared);
      for (const auto& variant : step->variants) {
        own->variants.push_back(std::make_unique<replayer::PlayerVariant>(
            variant->shared_recording(), step->name, state));
      }
      join(*own);
      steps.push_back(std::move(own));
    }
  }
  Impl(const Impl&) = delete;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& step : steps) names.push_back(step->name);
    return names;
  }

  const replayer::TrackedTensor* find(const std::string& path) const {
    const auto found = std::ranges::find_if(tracked, [&](const auto& each) {
      return each.path == path || std::ranges::find(each.aliases, path) != each.aliases.end();
    });
    return found == tracked.end() || !state.holds(found->buffer) ? nullptr : &*found;
  }

  /// What clones of this player read.
  std::set<std::string> read_paths() const {
    std::set<std::string> paths;
    for (const auto& step : steps) {
      if (step->writes_state()) continue;
      for (const auto& variant : step->variants) {
        for (const std::string& path : variant->state_paths()) paths.insert(path);
      }
    }
    return paths;
  }

  /// Paths of those that are there.
  std::set<std::string> gradients() const {
    std::set<std::string> paths;
    for (const auto& step : steps) {
      for (const auto& variant : step->variants) {
        for (const trace::Tracked& each : variant->recording().tracked) {
          if (each.role == trace::Role::kGradient && state.has_gradient(each.path))
            paths.insert(each.path);
        }
      }
    }
    return paths;
  }

  std::uint64_t runs() const {
    std::uint64_t runs = 0;
    for (const auto& step : steps) {
      if (step->writes_state()) runs += step->runs;
    }
    return runs;
  }

  void require_own_state(const char* what) const {
    if (!state.is_shared()) return;
    throw Error(ErrorCode::kFailedPrecondition,
                fmt::format("a clone cannot {}: its state is another player's", what));
  }

  void save(const std::string& path) const {
    trace::Trace saved = shared->trace;
    saved.state = state.save();
    storage::write(saved, path);
  }

  std::string write_snapshot() {
    const live::Stopwatch watch;
    const std::uint64_t number = runs();
    const std::string path = snapshots->path_of(number);
    try {
      save(path);
      snapshots->written(number);
    } catch (const std::exception& error) {
      shared->counters.snapshot_failed(error.what());
      shared->events->tell({Kind::kSnapshotFailed, {}, watch.us(), error.what()});
      throw;
    }
    shared->counters.snapshot_written();
    shared->events->tell({Kind::kSnapshot, {}, watch.us(), path});
    return path;
  }

  /// A step that wrote state has run, and its results must reach the caller.
  void after_write() {
    if (!snapshots || !snapshots->is_due_after_step()) return;
    try {
      write_snapshot();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): was told and counted
    }
  }

  std::vector<TensorSpec> specs(bool parameters_alone) const {
    std::vector<TensorSpec> specs;
    for (const replayer::TrackedTensor& each : tracked) {
      if (parameters_alone && each.role != trace::Role::kParameter) continue;
      TensorSpec spec;
      spec.path = each.path;
      spec.dtype = trace::name_of(each.geometry.dtype);
      spec.sizes = each.geometry.sizes;
      specs.push_back(std::move(spec));
    }
    return specs;
  }
};

Player::Player(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Player::Player(Player&&) noexcept = default;
Player& Player::operator=(Player&&) noexcept = default;
Player::~Player() = default;

std::string Player::origin() const {
  std::string words;
  for (const trace::Fact& fact : impl_->shared->trace.run) {
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", fact.name, fact.value);
  }
  return words;
}

std::vector<std::string> Player::steps() const { return impl_->names(); }

PlayerStep Player::step(const std::string& name) {
  for (const auto& step : impl_->steps) {
    if (step->name == name) return PlayerStep(step);
  }
  if (std::ranges::find(impl_->writing_steps, name) != impl_->writing_steps.end())
    impl_->require_own_state(fmt::format("run step \"{}\", which writes state", name).c_str());
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("no step \"{}\" can be replayed; there are: {}", name, fmt::join(steps(), ", ")));
}

std::vector<TensorSpec> Player::state() const { return impl_->specs(false); }
std::vector<TensorSpec> Player::parameters() const { return impl_->specs(true); }

at::Tensor Player::tensor(const std::string& path) const {
  impl_->state.renew();
  const replayer::TrackedTensor* found = impl_->find(path);
  if (found == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} holds no tensor \"{}\"",
                            impl_->state.is_shared() ? "what is published" : "the trace", path));
  }
  if (!impl_->state.is_shared()) return replayer::tensor_of(impl_->state, *found);
  return replayer::copied_tensor_on(impl_->state.storage(found->buffer), found->geometry);
}

std::vector<std::string> Player::scalars() const { return impl_->state.numbers(); }

double Player::scalar(const std::string& path) const {
  if (const trace::Value* number = impl_->state.number(path)) return trace::number_of(*number);
  throw Error(ErrorCode::kInvalidArgument, "the trace holds no number \"" + path + "\"");
}

void Player::set(const std::string& path, double value) {
  const trace::Value number{trace::Real{value}};
  if (const std::string mismatch = impl_->state.mismatch(path, number); !mismatch.empty())
    throw Error(ErrorCode::kInvalidArgument, path + ": " + mismatch);
  if (impl_->state.set_number(path, number)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the trace holds no number \"{}\"; there are: {}", path,
                          fmt::join(scalars(), ", ")));
}

void Player::seed(std::uint64_t value) { impl_->state.seed(value); }

void Player::save(const std::string& path) const {
  impl_->require_own_state("be saved");
  impl_->save(path);
}

void Player::save_weights(const std::string& path, const WeightsOptions& options) const {
  impl_->require_own_state("save weights");
  replayer::save_weights(impl_->state, impl_->tracked, path, options);
}

void Player::load_weights(const std::string& path, const WeightsOptions& options) {
  const live::Stopwatch watch;
  impl_->require_own_state("load weights");
  replayer::load_weights(impl_->state, impl_->tracked, path, options);
  impl_->shared->counters.weights_loaded();
  impl_->shared->events->tell({Kind::kWeightsLoaded, {}, watch.us(), path});
}

void Player::keep_snapshots(const SnapshotOptions& options) {
  impl_->require_own_state("keep snapshots");
  impl_->snapshots.reset();  // and lets go of its folder
  impl_->snapshots.emplace(options, impl_->runs());
  for (const auto& step : impl_->steps) {
    step->wrote_state = [impl = impl_.get()] { impl->after_write(); };
  }
}

std::string Player::snapshot() {
  if (!impl_->snapshots) {
    throw Error(ErrorCode::kFailedPrecondition, "no folder for snapshots: call keep_snapshots");
  }
  return impl_->write_snapshot();
}

Player Player::clone() {
  std::shared_ptr<replayer::Publication>& publication = impl_->shared->publication;
  if (!publication) {
    auto first = std::make_shared<replayer::Publication>(impl_->read_paths());
    first->publish(impl_->state.memory(), impl_->gradients());
    publication = std::move(first);
  }
  return Player(std::make_unique<Impl>(*impl_, publication));
}

void Player::publish() {
  impl_->require_own_state("publish");
  const live::Stopwatch watch;
  if (!impl_->shared->publication) return;  // nobody reads yet; the first clone publishes
  impl_->shared->publication->publish(impl_->state.memory(), impl_->gradients());
  impl_->shared->counters.published();
  impl_->shared->events->tell({Kind::kPublished, {}, watch.us()});
}

PlayerMetrics Player::metrics() const { return impl_->shared->counters.metrics(); }

PlayerMemory Player::memory() const {
  PlayerMemory memory;
  if (!impl_->state.is_shared()) memory.state = impl_->state.bytes();
  if (impl_->shared->publication) memory.published = impl_->shared->publication->bytes();
  for (const auto& step : impl_->steps) {
    for (const auto& variant : step->variants) {
      memory.arenas += variant->stats().arena_bytes;
      memory.constants += variant->constant_bytes();
    }
  }
  return memory;
}

std::string Player::explain() const {
  std::string text = fmt::format("player of {}{}\n", trace::on_one_line(impl_->shared->path),
                                 impl_->state.is_shared() ? ", a clone" : "");
  for (const std::string& difference : impl_->shared->differences) {
    text += "  accepted, though results may differ in their last bits: " +
            trace::on_one_line(difference) + "\n";
  }
  for (const auto& impl : impl_->steps) {
    const PlayerStep step(impl);
    const StepMetrics metrics = impl->counters->metrics();
    text += fmt::format("step \"{}\": {} calls ran, {} refused, {} failed; {}\n",
                        trace::on_one_line(step.name()), metrics.ran, metrics.refused,
                        metrics.failed, step.writes_state() ? "writes state" : "reads state");
    std::vector<std::string> shapes;
    for (const std::vector<TensorSpec>& inputs : step.inputs_of_variants()) {
      std::vector<std::string> words;
      for (const TensorSpec& input : inputs) words.push_back(replayer::words_of(input));
      shapes.push_back(fmt::format("takes {}", fmt::join(words, ", ")));
    }
    text += replayer::plan_lines(step.variants(), shapes);
  }
  return text;
}

Player load(const std::string& path, const LoadOptions& options) {
  if (options.threads < 0) {
    throw Error(ErrorCode::kInvalidArgument, "a negative number of threads");
  }
  if (options.threads > 0) at::set_num_threads(options.threads);
  auto shared = std::make_shared<Shared>();
  shared->path = path;
  shared->trace = storage::read(path);
  shared->events = std::make_shared<const replayer::Events>(options.on_event);
  std::vector<std::string> problems;
  shared->differences = replayer::environment_differences(shared->trace.environment);
  if (options.environment == Environment::kExact) problems = shared->differences;
  auto impl = std::make_unique<Player::Impl>(shared, options.device);
  shared->trace.state.clear();  // its bytes are the player's now
  impl->steps = plan_steps(*shared, impl->state, problems);
  if (problems.empty() && impl->steps.empty()) {
    problems.push_back(
        "no step in it was verified, with the program as it was when it was saved: what is only "
        "recorded (steptape.record) never is; of a wrapped step, run more calls before saving");
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{} cannot be replayed here:\n  {}", path,
                                                     fmt::join(problems, "\n  ")));
  }
  for (const auto& step : impl->steps) {
    for (const auto& variant : step->variants) {
      replayer::add_tracked(variant->recording(), impl->tracked);
    }
  }
  return Player(std::move(impl));
}

}  // namespace steptape
